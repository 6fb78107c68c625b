"""Settings of f-CLSWGAN."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.generative import REACH, GenerativeConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "FCLSWGANConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class FCLSWGANConfig(GenerativeConfig):
    """Settings of f-CLSWGAN. The recipe `reference` sets what differs from the defaults."""

    classification_weight: float = 1.0
    """Weight β of the classification loss of generated features."""

    def check(self) -> None:
        super().check()
        require(self, at_least={"classification_weight": 0})


# Epochs of public generalized runs; we know of none in the publication.
_PAPER: dict[str, int] = {"CUB": 56, "SUN": 40, "AWA1": 30, "AWA2": 30}


def paper(dataset: ZeroShotDataset) -> FCLSWGANConfig:
    """The published networks and optimizer, without calibration."""
    return FCLSWGANConfig(
        epochs=_PAPER.get(dataset.benchmark or "", 30),
        lr=1e-4,
        hidden=4096,
        classification_weight=0.01,
        attribute_normalization="unit-plain",
        final_relu=dataset.nonnegative,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> FCLSWGANConfig:
    """Narrower networks, larger steps and a stronger classification loss, selected by validation on CUB. It takes
    a fraction of the epochs, in which the published settings come nowhere near convergence."""
    return FCLSWGANConfig(
        final_relu=dataset.nonnegative, classifier_lr=2e-3, classifier_epochs=12, classifier_reach=REACH
    )


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(5e-5, 2e-3, log=True),
    "epochs": Range(2, 20, log=True, whole=True),
    "hidden": Choice((512, 1024, 2048)),
    "batch_size": Choice((64, 128, 256)),
    "classification_weight": Range(1e-2, 10.0, log=True),
    "synthesized": Range(50, 600, log=True, whole=True),
}
GRID: Space = {
    "lr": Choice((1e-4, 3e-4)),
    "classification_weight": Choice((0.01, 0.1, 1.0)),
    "synthesized": Choice((100, 300)),
}
METHOD = late_method("fclswgan", FCLSWGANConfig, RECIPES, SPACE, GRID, sees_unseen=True)
