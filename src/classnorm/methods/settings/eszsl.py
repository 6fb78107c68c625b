"""Settings of ESZSL."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import MethodConfig, Recipes, lazy_method
from classnorm.methods.settings.parts import NormalizedConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import Positive


@dataclass(frozen=True, kw_only=True)
class ESZSLConfig(MethodConfig, NormalizedConfig):
    """Settings of ESZSL."""

    feature_penalty: Positive = 1e3
    """γ, added to the diagonal of X Xᵀ. It scales with the number of training rows, for features of unit variance."""
    descriptor_penalty: Positive = 30.0
    """λ, added to the diagonal of S Sᵀ. It scales with the number of seen classes."""


def paper(dataset: ZeroShotDataset) -> ESZSLConfig:
    """Raw features, descriptors of unit norm. The publication selects both penalties from 10⁻³, …, 10³ by validation;
    these are the values for CUB. They depend on the feature norms and the dataset size: search them for other data."""
    return ESZSLConfig(
        feature_penalty=100.0,
        descriptor_penalty=0.1,
        feature_normalization="none",
        attribute_normalization="unit-plain",
    )


def reference(dataset: ZeroShotDataset) -> ESZSLConfig:
    """Standardized features, descriptors of unit norm, and penalties of 1 per training row and 0.5 per seen class,
    selected on validation splits of CUB."""
    return ESZSLConfig(feature_penalty=1.0 * len(dataset.split.train), descriptor_penalty=0.5 * int(dataset.seen.sum()))


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "feature_penalty": Range(1e2, 1e5, log=True),
    "descriptor_penalty": Range(1.0, 1e3, log=True),
}
GRID: Space = {  # part of the publication's grid of powers of ten
    "feature_penalty": Choice((1e2, 1e3, 1e4)),
    "descriptor_penalty": Choice((1.0, 10.0, 100.0)),
}
METHOD = lazy_method("eszsl", ESZSLConfig, RECIPES, SPACE, GRID)
