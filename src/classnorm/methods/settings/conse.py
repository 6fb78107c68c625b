"""Settings of ConSE."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, TrainedMethodConfig, lazy_method
from classnorm.methods.settings.parts import NormalizedConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeNormalizationKind
from classnorm.settings import Count
from classnorm.training import Schedule


@dataclass(frozen=True, kw_only=True)
class ConSEConfig(TrainedMethodConfig, NormalizedConfig):
    """Settings of ConSE."""

    top: Count = 10
    """T, the number of likeliest seen classes to combine."""
    attribute_normalization: AttributeNormalizationKind = "standardize"
    epochs: int = 20
    lr: float = 1e-3
    schedule: Schedule = "cosine"


def paper(dataset: ZeroShotDataset) -> ConSEConfig:
    """T = 10 and descriptors of unit norm. The classifier is linear on features of a convolutional network, whereas the
    publication trains the network itself."""
    return ConSEConfig(top=10, attribute_normalization="unit-plain")


def reference(dataset: ZeroShotDataset) -> ConSEConfig:
    """Standardized features and descriptors: non-negative descriptors of unit norm are nearly parallel."""
    return ConSEConfig()


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "top": Range(2, 50, log=True, whole=True),
    "epochs": Range(5, 50, log=True, whole=True),
    "lr": Range(2e-4, 5e-3, log=True),
}
GRID: Space = {"top": Choice((1, 5, 10, 20)), "epochs": Choice((10, 30))}
METHOD = lazy_method("conse", ConSEConfig, RECIPES, SPACE, GRID, parallel=True)
