"""Class Normalization: an MLP from descriptors to prototypes, trained by cross-entropy over the seen classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset, recognise
from classnorm.errors import ConfigError
from classnorm.methods.method import FitContext, Fitted, Method, MethodConfig, TrainingRows, ZeroShotModel, checkpoints
from classnorm.nn import (
    AttributeEmbedder,
    AttributeNormalizationKind,
    Distribution,
    HiddenNormalization,
    Initialization,
    cosine_logits,
    dot_logits,
    entropy_regularizer,
    gamma_for_variance,
)
from classnorm.training import TrainingConfig, train

__all__ = ["METHOD", "ClassNormConfig", "ClassNormModel", "Problem", "prepare"]


@dataclass(frozen=True, kw_only=True)
class ClassNormConfig(MethodConfig, TrainingConfig):
    """Every choice of the paper's model. The defaults are the `reference` recipe."""

    layers: int = 3
    """Linear layers of the embedder; 1 is the linear model."""
    hidden: int = 1024
    """Width of the hidden layers."""
    attribute_normalization: AttributeNormalizationKind = "unit"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""
    normalization: HiddenNormalization = "class"
    """Before the last layer: `class` standardization, `class-variance` (divides by the variance), `dynamic`, `none`."""
    standardize_before_relu: bool = True
    """Class standardization also before the last hidden ReLU (3 layers or more)."""
    final_relu: bool = True
    """ReLU on the prototypes: right for non-negative features, wrong for features of either sign (recipes look)."""
    init: Initialization = "proper"
    """Initialisation of the last layer."""
    hidden_init: Initialization = "torch"
    """Initialisation of the layers before it."""
    attribute_correction: bool = False
    """Start the first layer with variance 1/(d_out·d_a)."""
    init_distribution: Distribution = "uniform"
    """Draw initial weights from a uniform or a normal distribution."""
    logits: Literal["cosine", "dot"] = "cosine"
    """`cosine` is normalize+scale, `dot` the plain product."""
    gamma: float | Literal["auto"] = 5.0
    """Scale γ of normalize+scale (logits are γ²·cos); `auto` gives them unit variance at the start."""
    learn_gamma: bool = False
    """Train γ along."""
    entropy_weight: float = 0.0
    """Weight of the entropy regulariser, which rewards undecided predictions."""

    def check(self) -> None:
        MethodConfig.check(self)
        TrainingConfig.check(self)
        if self.gamma != "auto" and not (math.isfinite(self.gamma) and self.gamma > 0):
            raise ConfigError(f"gamma is {self.gamma}; it must be positive, or auto")
        if self.layers < 1 or self.hidden < 1:
            raise ConfigError(f"layers is {self.layers} and hidden is {self.hidden}; both must be at least 1")


class ClassNormModel(ZeroShotModel):
    """The embedder and the scale of its logits."""

    gamma: Tensor

    def __init__(self, config: ClassNormConfig, d_a: int, d_z: int, embedder: AttributeEmbedder) -> None:
        super().__init__()
        self.kind = config.logits
        self.embedder = embedder
        gamma = torch.tensor(gamma_for_variance(1.0, d_z) if config.gamma == "auto" else float(config.gamma))
        if config.learn_gamma:
            self.gamma = nn.Parameter(gamma)
        else:
            self.register_buffer("gamma", gamma)

    def prototypes(self, descriptors: Tensor) -> Tensor:
        result: Tensor = self.embedder(descriptors)
        return result

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        if self.kind == "dot":
            return dot_logits(features, prototypes)
        return cosine_logits(features, prototypes, self.gamma)


def _embedder(config: ClassNormConfig, d_a: int, d_z: int, seed: int, descriptors: Tensor | None) -> AttributeEmbedder:
    return AttributeEmbedder(
        d_a,
        d_z,
        layers=config.layers,
        hidden=config.hidden,
        attribute_normalization=config.attribute_normalization,
        normalization=config.normalization,
        standardize_before_relu=config.standardize_before_relu,
        final_relu=config.final_relu,
        init=config.init,
        hidden_init=config.hidden_init,
        attribute_correction=config.attribute_correction,
        init_distribution=config.init_distribution,
        seed=seed,
        descriptors=descriptors,
    )


def build(config: ClassNormConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> ClassNormModel:
    """A model to load weights into: how its own are drawn does not matter."""
    drawn = config.replace(init="torch", hidden_init="torch")
    return ClassNormModel(config, d_a, d_z, _embedder(drawn, d_a, d_z, 0, torch.zeros(2, d_a)))


@dataclass(frozen=True)
class Problem:
    """A model and what it is trained on: all that the training loop, or a diagnosis of it, needs."""

    model: ClassNormModel
    features: Tensor
    labels: Tensor
    descriptors: Tensor
    entropy_weight: float

    def logits(self, features: Tensor) -> Tensor:
        """[b, n_seen] of some training rows."""
        prototypes = self.model.prototypes(self.descriptors)
        if self.model.kind == "dot":
            return dot_logits(features, prototypes)
        return features @ (self.model.gamma**2 * F.normalize(prototypes, dim=1)).T

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        value = F.cross_entropy(logits, labels)
        if self.entropy_weight:
            value = value + self.entropy_weight * entropy_regularizer(logits)
        return value


def prepare(dataset: ZeroShotDataset, config: ClassNormConfig, seed: int, device: torch.device) -> Problem:
    """The untrained model and the training rows; only seen classes take part."""
    config.check()
    rows = TrainingRows.of(dataset, device)
    embedder = _embedder(config, dataset.d_a, dataset.d_z, seed, rows.descriptors.cpu())
    model = ClassNormModel(config, dataset.d_a, dataset.d_z, embedder).to(device)
    # Features of unit length once, instead of in every batch.
    features = F.normalize(rows.features, dim=1) if config.logits == "cosine" else rows.features
    return Problem(model, features, rows.labels, rows.descriptors, config.entropy_weight)


def fit(dataset: ZeroShotDataset, config: ClassNormConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    problem = prepare(dataset, config, seed, context.device)
    dot = "dot products are unbounded: use --logits cosine or lower --lr"
    history = train(
        problem.model,
        lambda features, labels: problem.loss(problem.logits(features), labels),
        problem.features,
        problem.labels,
        config,
        seed=seed,
        checkpoints=checkpoints(dataset, "classnorm", config, seed, context),
        progress=context.progress,
        hint=dot if config.logits == "dot" else "lower --lr",
    )
    return Fitted(problem.model, history)


# The paper's hyperparameter table; batch, learning rate, width.
_PAPER: dict[str, tuple[int, float, int]] = {
    "SUN": (128, 5e-4, 2048),
    "CUB": (512, 5e-3, 2048),
    "AWA1": (128, 5e-3, 1024),
    "AWA2": (128, 2e-3, 512),
}


def paper(dataset: ZeroShotDataset) -> ClassNormConfig:
    """The paper's hyperparameters; other datasets as CUB if they have over 100 classes, else as AwA2."""
    benchmark = recognise(dataset.class_names, dataset.n_rows) or ""
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


def reference(dataset: ZeroShotDataset) -> ClassNormConfig:
    """The authors' released run: its seen scale for the GBU benchmarks, validation for any other dataset."""
    benchmark = recognise(dataset.class_names, dataset.n_rows)
    released = {None: "validation", "CUB": "scale:1"}.get(benchmark, "scale:0.95")
    return ClassNormConfig(calibration=released, final_relu=dataset.nonnegative)


def baseline(dataset: ZeroShotDataset) -> ClassNormConfig:
    """`reference` without Class Normalization: no standardization, PyTorch's own initialisation."""
    return reference(dataset).replace(normalization="none", init="torch")


RECIPES: dict[str, Callable[[ZeroShotDataset], MethodConfig]] = {
    "paper": paper,
    "reference": reference,
    "baseline": baseline,
}
METHOD = Method(config=ClassNormConfig, recipes=RECIPES, build=build, fit=fit)
