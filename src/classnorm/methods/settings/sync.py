"""Settings of SynC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, TrainedMethodConfig, lazy_method
from classnorm.methods.settings.parts import NormalizedConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeNormalizationKind
from classnorm.settings import NotNegative, Positive
from classnorm.training import Schedule


@dataclass(frozen=True, kw_only=True)
class SynCConfig(TrainedMethodConfig, NormalizedConfig):
    """Settings of SynC."""

    sigma: Positive = 1.5
    """σ, the width of the similarity; 1 is the root mean square distance between seen classes."""
    loss: Literal["one-versus-other", "crammer-singer", "structured"] = "one-versus-other"
    """Squared hinge of each class against the others (`one-versus-other`), or of the worst wrong class with a margin
    of 1 (`crammer-singer`) or of its squared descriptor distance (`structured`)."""
    penalty: NotNegative = 1e-3
    """λ, the weight of Σ_c ‖w_c‖² / 2."""
    feature_normalization: AttributeNormalizationKind = "unit-plain"
    attribute_normalization: AttributeNormalizationKind = "unit-plain"
    epochs: int = 30
    lr: float = 0.1
    """Learning rate; large, like the classifiers of features of unit norm."""
    weight_decay: float = 0.0
    """L2 penalty of the optimizer, in addition to `penalty`."""
    schedule: Schedule = "cosine"


def paper(dataset: ZeroShotDataset) -> SynCConfig:
    """The one-versus-other loss, features and descriptors of unit norm. The publication selects σ and λ for each
    dataset by validation; here they are those of `reference`."""
    return SynCConfig()


def reference(dataset: ZeroShotDataset) -> SynCConfig:
    """The defaults; σ = 1.5 and λ = 10⁻³ were selected on validation splits of CUB."""
    return SynCConfig()


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {"sigma": Range(0.5, 4.0, log=True), "penalty": Range(3e-5, 3e-3, log=True)}
GRID: Space = {"sigma": Choice((0.5, 1.0, 2.0)), "penalty": Choice((1e-4, 3e-4, 1e-3))}
METHOD = lazy_method("sync", SynCConfig, RECIPES, SPACE, GRID, parallel=True)
