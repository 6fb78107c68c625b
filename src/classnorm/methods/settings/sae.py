"""Settings of SAE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import MethodConfig, Recipes, lazy_method
from classnorm.methods.settings.parts import NormalizedConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import Positive


@dataclass(frozen=True, kw_only=True)
class SAEConfig(MethodConfig, NormalizedConfig):
    """Settings of SAE."""

    encoder_weight: Positive = 0.1
    """λ, the weight of the encoding error ‖W X − S‖² relative to the decoding error ‖X − Wᵀ S‖²."""
    score_in: Literal["feature", "descriptor"] = "feature"
    """Compare by cosine in `feature` space (decoded descriptors) or in `descriptor` space (encoded features)."""


def paper(dataset: ZeroShotDataset) -> SAEConfig:
    """Raw features, descriptors of unit norm. The publication selects λ for each dataset by validation; this is the
    value for CUB. It depends on the feature norms: search it for other data."""
    return SAEConfig(encoder_weight=1e-3, feature_normalization="none", attribute_normalization="unit-plain")


def reference(dataset: ZeroShotDataset) -> SAEConfig:
    """Standardized features, descriptors of unit norm; λ = 0.1 was selected on validation splits of CUB."""
    return SAEConfig()


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "encoder_weight": Range(3e-3, 3.0, log=True),
    "attribute_normalization": Choice(("unit", "standardize")),
}
GRID: Space = {
    "encoder_weight": Choice((0.03, 0.1, 0.3, 1.0)),
    "attribute_normalization": Choice(("unit", "standardize")),
}
METHOD = lazy_method("sae", SAEConfig, RECIPES, SPACE, GRID)
