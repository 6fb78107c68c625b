"""Settings of CIZSL."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.fclswgan import FCLSWGANConfig
from classnorm.methods.settings.fclswgan import paper as fclswgan_paper
from classnorm.methods.settings.generative import REACH
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "CIZSLConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class CIZSLConfig(FCLSWGANConfig):
    """Settings of CIZSL. The recipe `reference` sets what differs from the defaults."""

    hidden: int = 512
    classifier_lr: float = 2e-3
    classifier_epochs: int = 12
    creativity_weight: float = 0.1
    """Weight of the divergence between the posterior of hallucinated classes and the uniform distribution."""
    realism_weight: float = 0.1
    """Weight of the critic's judgement of hallucinated classes."""

    def check(self) -> None:
        super().check()
        require(self, at_least={"creativity_weight": 0, "realism_weight": 0})


def paper(dataset: ZeroShotDataset) -> CIZSLConfig:
    """The networks and schedule of f-CLSWGAN, with the weights of the authors' code; no calibration."""
    return CIZSLConfig(**fclswgan_paper(dataset).as_dict(), creativity_weight=0.1, realism_weight=1.0)


def reference(dataset: ZeroShotDataset) -> CIZSLConfig:
    """A short schedule and weights selected by validation on CUB."""
    return CIZSLConfig(final_relu=dataset.nonnegative, classifier_reach=REACH)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(5e-5, 2e-3, log=True),
    "epochs": Range(2, 20, log=True, whole=True),
    "classification_weight": Range(1e-2, 10.0, log=True),
    "creativity_weight": Range(1e-4, 10.0, log=True),
    "synthesized": Range(50, 600, log=True, whole=True),
}
GRID: Space = {
    "creativity_weight": Choice((1e-4, 0.1, 1.0)),
    "realism_weight": Choice((0.1, 1.0)),
}
METHOD = late_method("cizsl", CIZSLConfig, RECIPES, SPACE, GRID, sees_unseen=True)
