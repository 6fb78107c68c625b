"""Settings of DASCN."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.fclswgan import FCLSWGANConfig
from classnorm.methods.settings.generative import REACH, rate
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "DASCNConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class DASCNConfig(FCLSWGANConfig):
    """Settings of DASCN. The recipe `reference` sets what differs from the defaults."""

    batch_size: int = 128
    classifier_epochs: int = 12
    epochs: int = 9
    lr: float = 1e-3
    hidden: int = 512
    """Hidden units of the two generators and of the two critics."""
    critic_steps: int = 1
    dual_weight: float = 0.1
    """Weight of the judgement of reconstructed descriptors by their critic."""
    semantic_weight: float = 1.0
    """Weight of the semantic consistency: the squared error of reconstructed descriptors."""
    visual_weight: float = 10.0
    """Weight of the visual consistency: the squared distance of class means of generated and of real features."""
    mean_rows: int = 8
    """Generated features per class mean; the classes of a step are as many as make a batch."""

    def check(self) -> None:
        super().check()
        limits = dict.fromkeys(("dual_weight", "semantic_weight", "visual_weight"), 0) | {"mean_rows": 1}
        require(self, at_least=limits)


def paper(dataset: ZeroShotDataset) -> DASCNConfig:
    """The published width of the networks, with the schedule of f-CLSWGAN and equal weights; without calibration."""
    return DASCNConfig(
        batch_size=64,
        classifier_epochs=25,
        epochs=50,
        lr=1e-4,
        hidden=4096,
        critic_steps=5,
        dual_weight=1.0,
        visual_weight=1.0,
        classification_weight=0.01,
        attribute_normalization="unit-plain",
        final_relu=dataset.nonnegative,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> DASCNConfig:
    """Narrow networks, large steps and weights selected by validation on CUB."""
    return DASCNConfig(final_relu=dataset.nonnegative, lr=rate(dataset, 1e-3), classifier_reach=REACH)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(5e-5, 2e-3, log=True),
    "epochs": Range(4, 30, log=True, whole=True),
    "hidden": Choice((512, 1024, 2048)),
    "batch_size": Choice((64, 128, 256)),
    "critic_steps": Choice((1, 2, 5)),
    "classification_weight": Range(1e-2, 10.0, log=True),
    "semantic_weight": Range(1e-2, 10.0, log=True),
    "dual_weight": Range(1e-2, 1.0, log=True),
    "visual_weight": Range(0.1, 30.0, log=True),
    "synthesized": Range(50, 600, log=True, whole=True),
}
GRID: Space = {
    "lr": Choice((3e-4, 1e-3)),
    "semantic_weight": Choice((0.1, 1.0)),
    "visual_weight": Choice((1.0, 10.0)),
}
METHOD = late_method("dascn", DASCNConfig, RECIPES, SPACE, GRID, sees_unseen=True)
