"""Settings of Class Normalization."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import DescriptorConfig, GeometryConfig, Method, Recipes, ScaleConfig, TrainedMethodConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import Distribution, HiddenNormalization, Initialization
from classnorm.registry import Lazy
from classnorm.settings import Depth, NotNegative, Width, added_setting, at_least, at_most


@dataclass(frozen=True, kw_only=True)
class ClassNormConfig(TrainedMethodConfig, GeometryConfig, DescriptorConfig, ScaleConfig):
    """Settings of Class Normalization and its extensions. The defaults are the recipe `reference`."""

    layers: Depth = 3
    """Linear layers of the embedder; 1 is the linear model."""
    hidden: Width = 1024
    """Width of the hidden layers."""
    normalization: HiddenNormalization = "class"
    """Before the last layer: `class` standardization, `class-variance` (divides by the variance), `dynamic` (by a mean
    squared norm, as printed), `dynamic-root` (by its root, which preserves the variance), or `none`."""
    standardize_before_relu: bool = True
    """Class standardization also before the last hidden ReLU (3 layers or more)."""
    final_relu: bool = True
    """ReLU on the prototypes, as in the authors' code for non-negative features; the paper's text has none. It can cost
    accuracy: compare both on validation."""
    output_bias: bool = added_setting(True)
    """Bias of the last layer. The paper's formulas have none: V·H(a), and V·a for 1 layer."""
    init: Initialization = "proper"
    """Initialisation of the last layer."""
    hidden_init: Initialization = "torch"
    """Initialisation of the other layers."""
    attribute_correction: bool = False
    """Start the first layer with variance 1/(d_out·d_a)."""
    init_distribution: Distribution = "uniform"
    """Distribution of the initial weights."""
    logits: Literal["cosine", "dot"] = "cosine"
    """Logits: `cosine` (normalize+scale) or the `dot` product."""
    gamma: float | Literal["auto"] = 5.0
    """Scale γ of normalize+scale (logits are γ²·cos); `auto` gives unit variance at initialisation."""
    learn_gamma: bool = False
    """Learn γ."""
    entropy_weight: float = 0.0
    """Weight of the entropy regulariser, which rewards uncertain predictions."""
    geometry: bool = False
    """Train on features mapped by a power and partial whitening, as in the recipe `best`."""
    virtual_classes: Annotated[int, at_least(0), at_most(10**6)] = 0
    """Virtual classes per batch: mixtures of two rows and of the descriptors of their classes."""
    descriptor_noise: NotNegative = 0.0
    """Descriptor noise in training, relative to the standard deviation of each dimension over the seen classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma != "auto" and not (math.isfinite(self.gamma) and self.gamma > 0):
            raise ConfigError(f"gamma is {self.gamma}; it must be positive, or auto")
        if self.geometry and (self.final_relu or self.logits == "dot"):
            raise ConfigError(
                'geometry maps features to signed vectors of unit length; use `logits="cosine"` and `final_relu=False`'
            )


_ROWS_AT_LEAST = 56_000  # of the recipe best, counting a row once per epoch
_FAST_ROWS = 70_000  # of the recipe fast
# The paper's hyperparameter table: batch size, learning rate, width.
_PAPER: dict[str, tuple[int, float, int]] = {
    "SUN": (128, 5e-4, 2048),
    "CUB": (512, 5e-3, 2048),
    "AWA1": (128, 5e-3, 1024),
    "AWA2": (128, 2e-3, 512),
}


def paper(dataset: ZeroShotDataset) -> ClassNormConfig:
    """The paper's hyperparameters; other datasets use those of CUB if they have over 100 classes, else AwA2."""
    benchmark = dataset.benchmark or ""
    like = benchmark if benchmark in _PAPER else "CUB" if dataset.n_classes > 100 else "AWA2"
    batch_size, lr, hidden = _PAPER[like]
    return ClassNormConfig(
        batch_size=batch_size,
        lr=lr,
        hidden=hidden,
        weight_decay=0.0,
        schedule="constant",
        entropy_weight=1e-3,
        calibration="validation:grid",
        validation="paper",
        final_relu=dataset.nonnegative,
    )


def literal(dataset: ZeroShotDataset) -> ClassNormConfig:
    """The paper's text to the letter: V·S(H(a)) with S once, before V, unit-norm attributes without the factor √d_a, no
    bias of V and no ReLU on the prototypes. Hyperparameters as in `paper`."""
    return paper(dataset).replace(
        attribute_normalization="unit-plain", standardize_before_relu=False, final_relu=False, output_bias=False
    )


def reference(dataset: ZeroShotDataset) -> ClassNormConfig:
    """The authors' released code, with its seen scale for the GBU benchmarks and validation for other datasets."""
    calibration = {None: "validation", "CUB": "scale:1"}.get(dataset.benchmark, "scale:0.95")
    return ClassNormConfig(calibration=calibration, final_relu=dataset.nonnegative)


def baseline(dataset: ZeroShotDataset) -> ClassNormConfig:
    """`reference` without Class Normalization: no standardization, PyTorch's default initialisation."""
    return reference(dataset).replace(normalization="none", init="torch")


def fast(dataset: ZeroShotDataset) -> ClassNormConfig:
    """`reference` with fewer steps, a fifth on CUB; calibrated, its validation scores are those of `reference`."""
    epochs = math.ceil(_FAST_ROWS / len(dataset.split.train))
    return ClassNormConfig(
        epochs=min(max(5, epochs), ClassNormConfig.epochs),
        lr=1e-3,
        schedule="cosine",
        calibration="validation",
        final_relu=dataset.nonnegative,
    )


def best(dataset: ZeroShotDataset) -> ClassNormConfig:
    """Beyond the paper: feature geometry, virtual classes, descriptor noise; more epochs for small datasets."""
    rows = max(ClassNormConfig.batch_size, len(dataset.split.train))  # an epoch has at least one step
    return ClassNormConfig(
        geometry=True,
        final_relu=False,
        epochs=max(8, math.ceil(_ROWS_AT_LEAST / rows)),
        schedule="cosine",
        gamma=4.0,
        whitening=0.3,
        hubness=0.2,
        virtual_classes=128,
        descriptor_noise=0.3,
        calibration="validation",
    )


RECIPES: Recipes = {
    "paper": paper,
    "literal": literal,
    "reference": reference,
    "fast": fast,
    "baseline": baseline,
    "best": best,
}
SPACE: Space = {
    "lr": Range(1e-4, 5e-3, log=True),
    "hidden": Choice((512, 1024, 2048)),
    "batch_size": Choice((64, 128, 256, 512)),
    "epochs": Range(5, 50, log=True, whole=True),
    "gamma": Range(3.0, 8.0),
    "weight_decay": Range(1e-6, 1e-3, log=True),
    "entropy_weight": Choice((0.0, 1e-3)),
}
GRID: Space = {  # the values of the paper's hyperparameter table
    "lr": Choice((5e-4, 2e-3, 5e-3)),
    "hidden": Choice((512, 1024, 2048)),
    "batch_size": Choice((128, 512)),
}
METHOD = Method(
    ClassNormConfig,
    RECIPES,
    build=Lazy("classnorm.methods.classnorm", "build"),
    fit=Lazy("classnorm.methods.classnorm", "fit"),
    space=SPACE,
    grid=GRID,
    parallel=True,
)
