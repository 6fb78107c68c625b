"""Settings of kernel prototypes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import GeometryConfig, Method, Recipes, ScaleConfig, TrainedMethodConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.registry import Lazy
from classnorm.settings import Positive, Share, added_setting, at_least, at_most, between
from classnorm.training import Schedule


@dataclass(frozen=True, kw_only=True)
class KernelConfig(TrainedMethodConfig, GeometryConfig, ScaleConfig):
    """Settings of kernel prototypes. The defaults are the recipe `earlier`, of version 0.1."""

    ridge: Positive = 0.1
    """Ridge penalty of the regression from descriptors to class means."""
    descriptor_power: Positive = added_setting(1.0)
    """Power of the descriptors, sign kept; below 1, large values of single attributes count less."""
    error_share: Share = added_setting(0.0)
    """Geometry: weight of the regression's errors, by leaving out one class at a time, in the covariance."""
    spread: Share = 0.25
    """Divide descriptors by their standard deviation over the seen classes to this power."""
    bandwidth: Positive = 2.0
    """Bandwidth of the Gaussian kernel, relative to the median squared distance between seen classes."""
    blocks: str = ""
    """Sizes of descriptor parts with separate kernels, like 312,384 for attributes and text; empty is one kernel."""
    block_weights: str = added_setting("")
    """Weights of the kernels of `blocks`, like 3,1, or `equal`; empty chooses them, leaving out a class at a time."""
    feature_blocks: str = added_setting("")
    """Sizes of feature parts with separate geometries, as of several encoders; empty is one geometry."""
    feature_weights: str = added_setting("")
    """Weights of the parts of `feature_blocks` in the cosines, like 4,1 if the second is weaker; empty is equal."""
    landmarks: Annotated[int, at_least(2), at_most(10**6)] = 2000
    """Largest number of seen classes that span the kernel's feature space; larger sets are sampled by the seed."""
    closed_form: bool = False
    """Skip the softmax refinement: no training."""
    scale: Positive = 20.0
    """Scale of the cosines in the softmax."""
    length: Annotated[float, between(0, 2)] = 1.3
    """Divide prototypes by their length to this power; above 1 favours classes unlike the seen ones."""
    map_rate: Share = 0.1
    """Learning rate of the linear map of the features, relative to `lr`."""
    epochs: int = 3
    """Passes over the training rows; more overfit to the seen classes."""
    lr: float = 3e-3
    """Learning rate of the coefficients."""
    closed_share: Share = added_setting(0.0)
    """Share of the closed form in the refined coefficients; their average knows unseen classes better."""
    weight_decay: float = 0.0
    schedule: Schedule = "cosine"
    calibration: str = "validation:bias"

    def block_sizes(self, d_a: int) -> list[int]:
        """Sizes of the descriptor parts."""
        return _sizes(self.blocks, d_a, "blocks", "descriptor")

    def fixed_weights(self, n_blocks: int) -> list[float] | None:
        """The given weights of the descriptor parts, scaled to add up to 1; None if they are equal or to be chosen."""
        if self.block_weights in ("", "equal"):
            return None
        return _weights(self.block_weights, n_blocks, "block_weights", "blocks", "equal, or ")

    def part_weights(self, n_parts: int) -> list[float] | None:
        if not self.feature_weights:
            return None
        return _weights(self.feature_weights, n_parts, "feature_weights", "feature_blocks")

    def feature_parts(self, d_z: int) -> list[int]:
        """Sizes of the feature parts with separate geometries."""
        return _sizes(self.feature_blocks, d_z, "feature_blocks", "feature")


def _sizes(text: str, total: int, setting: str, kind: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")] if text else [total]
    except ValueError:
        sizes = []
    if sum(sizes) != total or min(sizes, default=0) < 1:
        raise ConfigError(f"{setting} is {text!r}; give sizes that add up to the {total} {kind} dimensions")
    return sizes


def _weights(text: str, n_parts: int, setting: str, parts: str, otherwise: str = "") -> list[float]:
    """Scaled to add up to 1."""
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError:
        weights = []
    total = sum(weights)
    if len(weights) != n_parts or min(weights) < 0 or not 0 < total < math.inf:
        raise ConfigError(
            f"{setting} is {text!r}; give {otherwise}a number from 0 for each of the {n_parts} parts in `{parts}`"
        )
    return [weight / total for weight in weights]


def recorded_blocks(dataset: ZeroShotDataset) -> dict[str, Any]:
    """The settings for parts of the features, as of several encoders, and of the descriptors that are recorded."""
    return {
        "feature_blocks": ",".join(map(str, dataset.provenance.feature_blocks(dataset.d_z))),
        "blocks": ",".join(map(str, dataset.provenance.descriptor_blocks(dataset.d_a))),
    }


def _of(dataset: ZeroShotDataset) -> KernelConfig:
    """The same for all data, with the parts of features and descriptors that are recorded with it."""
    return KernelConfig(
        descriptor_power=0.75,
        within=0.875,
        error_share=0.5,
        closed_share=0.25,
        hubness=0.05,
        **recorded_blocks(dataset),
    )


RECIPES: Recipes = {
    "reference": _of,
    "closed-form": lambda dataset: _of(dataset).replace(closed_form=True),
    "earlier": lambda dataset: KernelConfig(),
}
SPACE: Space = {
    "power": Range(0.3, 1.0),
    "whitening": Range(0.0, 0.6),
    "shrinkage": Range(0.05, 0.6),
    "within": Range(0.0, 1.0),
    "descriptor_power": Range(0.4, 1.0),
    "spread": Range(0.0, 0.6),
    "bandwidth": Range(0.5, 4.0, log=True),
    "ridge": Range(0.02, 1.0, log=True),
    "length": Range(1.0, 1.6),
    "epochs": Range(1, 8, whole=True),
}
GRID: Space = {
    "whitening": Choice((0.2, 0.35, 0.5)),
    "ridge": Choice((0.03, 0.1, 0.3)),
}
METHOD = Method(
    KernelConfig,
    RECIPES,
    build=Lazy("classnorm.methods.kernel", "build"),
    fit=Lazy("classnorm.methods.kernel", "fit"),
    space=SPACE,
    grid=GRID,
    parallel=True,
)
