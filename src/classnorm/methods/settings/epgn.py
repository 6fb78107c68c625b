"""Settings of E-PGN."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import MethodConfig, Recipes, late_method
from classnorm.methods.settings.parts import DescriptorConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "EPGNConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class EPGNConfig(MethodConfig, DescriptorConfig):
    """Settings of E-PGN. The defaults are the recipe `reference`."""

    epochs: int = 8
    """Episodes; each holds out other classes."""
    steps: int = 50
    """Steps of an episode on the classes that are not held out."""
    refine_steps: int = 10
    """Steps of an episode on the held-out classes; 0 trains without episodes, on all classes."""
    held_out: int = 10
    """Classes held out in an episode, at most half of the seen ones."""
    batch_size: int = 64
    """Rows per step on the classes that are not held out."""
    lr: float = 1e-3
    """Learning rate (Adam)."""
    refine_rate: float = 0.1
    """Learning rate on the held-out classes, as a share of `lr`."""
    refine_scale: float = 10.0
    """Factor of the mean squared distances in the softmax over the held-out classes."""
    hidden: int = 512
    """Hidden units of the prototype generator and of its reverse."""
    critic_hidden: int = 512
    """Hidden units of the critic."""
    final_relu: bool = True
    """ReLU on the prototypes, for non-negative features; recipes set it to match the data."""
    regression_weight: float = 10.0
    """Weight of the squared errors, relative to the cross-entropies."""
    classification_scale: float = 0.03
    """Factor of the inner products in the cross-entropies."""
    adversarial_weight: float = 0.03
    """Weight of the critic's score in the loss of the other networks; 0 trains without a critic."""
    gradient_penalty: float = 10.0
    """Weight λ of the critic's gradient penalty."""

    def check(self) -> None:
        super().check()
        positive = ("lr", "refine_rate", "refine_scale", "classification_scale")
        counts = ("epochs", "steps", "held_out", "batch_size", "hidden", "critic_hidden")
        weights = ("refine_steps", "regression_weight", "adversarial_weight", "gradient_penalty")
        require(self, positive=positive, at_least=dict.fromkeys(counts, 1) | dict.fromkeys(weights, 0))


@dataclass(frozen=True)
class _Schedule:
    """A published run: episodes, their steps, the batch, steps on held-out classes, rate, width of the critic."""

    epochs: int
    steps: int
    batch_size: int
    refine_steps: int
    lr: float
    critic_hidden: int


_CUB = _Schedule(15, 100, 32, 10, 5e-5, 1600)
_PAPER = {"AWA1": _Schedule(30, 50, 100, 100, 5e-5, 1200), "AWA2": _Schedule(30, 50, 64, 30, 2e-4, 1800)}


def paper(dataset: ZeroShotDataset) -> EPGNConfig:
    """The networks and schedules of the authors' runs, without calibration."""
    return EPGNConfig(
        **dataclasses.asdict(_PAPER.get(dataset.benchmark or "", _CUB)),
        hidden=1800,
        refine_scale=1.0,
        regression_weight=1.0,
        classification_scale=1.0,
        adversarial_weight=1.0,
        attribute_normalization="none",
        final_relu=dataset.nonnegative,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> EPGNConfig:
    """Narrower networks, larger steps and smaller logits, selected by validation on CUB."""
    return EPGNConfig(final_relu=dataset.nonnegative)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(2e-4, 3e-3, log=True),
    "epochs": Range(4, 30, log=True, whole=True),
    "refine_steps": Choice((5, 10, 20)),
    "regression_weight": Range(1.0, 100.0, log=True),
    "classification_scale": Range(0.01, 0.3, log=True),
    "adversarial_weight": Range(0.003, 0.3, log=True),
}
GRID: Space = {
    "lr": Choice((5e-4, 1e-3)),
    "regression_weight": Choice((3.0, 10.0, 30.0)),
    "classification_scale": Choice((0.03, 0.1)),
}
METHOD = late_method("epgn", EPGNConfig, RECIPES, SPACE, GRID)
