"""Settings of TF-VAEGAN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.fvaegan import FVAEGANConfig
from classnorm.methods.settings.generative import REACH, rate
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "TFVAEGANConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class TFVAEGANConfig(FVAEGANConfig):
    """Settings of TF-VAEGAN. The recipe `reference` sets what differs from the defaults."""

    epochs: int = 5
    """Passes of the generator over the training rows, each without feedback and with it."""
    adversarial_weight: float = 3.0
    semantic_weight: float = 1.0
    """Weight β of the reconstruction of descriptors from features."""
    feedback_weight: float = 1.0
    """Weight δ of the feedback in the hidden layer of the generator; 0 turns it off."""
    decoder_lr: float = 1e-3
    """Learning rate of the semantic decoder."""
    feedback_lr: float = 1e-4
    """Learning rate of the feedback module."""

    def check(self) -> None:
        super().check()
        require(self, positive=["decoder_lr", "feedback_lr"], at_least={"semantic_weight": 0, "feedback_weight": 0})


# What differs from CUB in the authors' runs.
_PAPER: dict[str, dict[str, Any]] = {
    "SUN": {
        "classifier_lr": 5e-4,
        "epochs": 400,
        "lr": 1e-3,
        "synthesized": 400,
        "adversarial_weight": 1.0,
        "feedback_weight": 0.1,
        "feedback_lr": 1e-4,
    },
    "AWA2": {
        "epochs": 120,
        "lr": 1e-5,
        "synthesized": 1800,
        "semantic_weight": 0.1,
        "feedback_weight": 0.01,
        "feedback_lr": 1e-4,
    },
}


def paper(dataset: ZeroShotDataset) -> TFVAEGANConfig:
    """The authors' settings, those of CUB for other data; no calibration, and no choice of an epoch on test data."""
    config = TFVAEGANConfig(
        batch_size=64,
        classifier_epochs=25,
        epochs=300,
        lr=1e-4,
        hidden=4096,
        critic_steps=5,
        adversarial_weight=10.0,
        semantic_weight=0.01,
        decoder_lr=1e-4,
        feedback_lr=1e-5,
        attribute_normalization="unit-plain",
        calibration="none",
    )
    return config.replace(**_PAPER.get(dataset.benchmark or "", {}))


def reference(dataset: ZeroShotDataset) -> TFVAEGANConfig:
    """Narrow networks, large steps and other weights, selected by validation on CUB."""
    return TFVAEGANConfig(lr=rate(dataset, 1e-3), decoder_lr=rate(dataset, 1e-3), classifier_reach=0.5 * REACH)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(5e-5, 2e-3, log=True),
    "epochs": Range(2, 15, log=True, whole=True),
    "hidden": Choice((512, 1024, 2048)),
    "batch_size": Choice((64, 128, 256)),
    "critic_steps": Choice((1, 2, 5)),
    "adversarial_weight": Range(0.1, 30.0, log=True),
    "semantic_weight": Range(1e-2, 10.0, log=True),
    "feedback_weight": Range(1e-2, 1.0, log=True),
    "synthesized": Range(50, 600, log=True, whole=True),
}
GRID: Space = {
    "lr": Choice((3e-4, 1e-3)),
    "semantic_weight": Choice((0.01, 1.0)),
    "feedback_weight": Choice((0.01, 0.1, 1.0)),
}
METHOD = late_method("tfvaegan", TFVAEGANConfig, RECIPES, SPACE, GRID, sees_unseen=True)
