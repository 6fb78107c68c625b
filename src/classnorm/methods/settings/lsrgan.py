"""Settings of LsrGAN."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.fclswgan import FCLSWGANConfig
from classnorm.methods.settings.generative import REACH
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "LsrGANConfig", "paper", "reference", "released"]


@dataclass(frozen=True, kw_only=True)
class LsrGANConfig(FCLSWGANConfig):
    """Settings of LsrGAN. The recipe `reference` sets what differs from the defaults."""

    epochs: int = 3
    lr: float = 5e-4
    hidden: int = 512
    classifier_lr: float = 2e-3
    classifier_epochs: int = 12
    centroid_weight: float = 1.0
    """Weight of the distance between generated and real means of seen classes."""
    relation_weight: float = 20.0
    """Weight of the relation loss."""
    relation_slack: float = 0.1
    """Difference ε between similarities of features and of descriptors that the relation loss tolerates."""
    neighbours: int = 20
    """Seen classes to which the relation loss compares a class."""
    mean_rows: int = 8
    """Generated features per class mean; the classes of a step are as many as make a batch."""

    def check(self) -> None:
        super().check()
        limits = dict.fromkeys(("centroid_weight", "relation_weight", "relation_slack"), 0) | {
            "neighbours": 1,
            "mean_rows": 1,
        }
        require(self, at_least=limits)


def paper(dataset: ZeroShotDataset) -> LsrGANConfig:
    """The networks and schedule of the authors' scripts, with the relation loss of the paper; no calibration."""
    config = LsrGANConfig(
        epochs=40,
        lr=1e-4,
        hidden=4096,
        classification_weight=0.01,
        classifier_lr=1e-3,
        classifier_epochs=25,
        attribute_normalization="unit-plain",
        final_relu=dataset.nonnegative,
        mean_rows=1,
        calibration="none",
    )
    if dataset.benchmark == "SUN":
        return config.replace(epochs=20, lr=2e-4, classification_weight=0.03, relation_weight=10.0, synthesized=400)
    if dataset.benchmark in ("AWA1", "AWA2"):
        return config.replace(epochs=18, lr=1e-5, classification_weight=0.001, relation_slack=0.15, synthesized=1800)
    return config


def released(dataset: ZeroShotDataset) -> LsrGANConfig:
    """Like `paper`, but without the relation loss: the authors' code computes it outside of the gradient."""
    return paper(dataset).replace(relation_weight=0.0)


def reference(dataset: ZeroShotDataset) -> LsrGANConfig:
    """A short schedule and weights selected by validation on CUB."""
    return LsrGANConfig(final_relu=dataset.nonnegative, classifier_reach=REACH)


RECIPES: Recipes = {"paper": paper, "reference": reference, "released": released}
SPACE: Space = {
    "lr": Range(5e-5, 2e-3, log=True),
    "epochs": Range(2, 20, log=True, whole=True),
    "classification_weight": Range(1e-2, 10.0, log=True),
    "centroid_weight": Range(0.01, 10.0, log=True),
    "relation_weight": Range(1.0, 1000.0, log=True),
    "synthesized": Range(50, 600, log=True, whole=True),
}
GRID: Space = {
    "centroid_weight": Choice((0.1, 1.0)),
    "relation_weight": Choice((0.0, 20.0, 200.0)),
    "relation_slack": Choice((0.05, 0.1)),
}
METHOD = late_method("lsrgan", LsrGANConfig, RECIPES, SPACE, GRID, sees_unseen=True)
