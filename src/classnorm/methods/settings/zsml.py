"""Settings of ZSML."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.generative import GenerativeConfig, rate
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "ZSMLConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class ZSMLConfig(GenerativeConfig):
    """Settings of ZSML. The recipe `reference` sets what differs from the defaults."""

    epochs: int = 6
    """Epochs of `tasks` tasks each, whatever the number of training rows."""
    tasks: int = 50
    """Tasks of an epoch, with one step of the initial weights each."""
    ways: int = 10
    """Classes in the support of a task, and as many others in its query."""
    shots: int = 5
    """Support rows of a class."""
    queries: int = 5
    """Query rows of a class."""
    inner_steps: int = 2
    """Generator steps on the support of a task."""
    inner_lr: float = 1e-2
    """Learning rate of the steps on the support (plain gradient descent)."""
    critic_steps: int = 1
    """Critic steps before each generator step on the support."""
    lr: float = 1e-3
    """Learning rate of the initial weights of generator and classifier (Adam, β 0.5 and 0.999)."""
    critic_lr: float = 1e-3
    """Learning rate of the initial weights of the critic."""
    hidden: int = 512
    """Hidden units of the generator and of the critic."""
    noise: int = 512
    """Dimensions of the generator's noise."""
    classification_weight: float = 3.0
    """Weight of the classification loss of real and generated features."""

    def check(self) -> None:
        super().check()
        counts = dict.fromkeys(("tasks", "ways", "shots", "queries", "inner_steps", "noise"), 1)
        require(self, positive=["inner_lr", "critic_lr"], at_least=counts | {"classification_weight": 0})


def paper(dataset: ZeroShotDataset) -> ZSMLConfig:
    """The published tasks, rates and noise, without calibration; epochs, widths and weights are our guesses."""
    return ZSMLConfig(
        epochs=100,
        tasks=100,
        queries=3,
        inner_steps=5,
        inner_lr=1e-3,
        critic_lr=1e-5,
        hidden=4096,
        attribute_normalization="unit-plain",
        final_relu=dataset.nonnegative,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> ZSMLConfig:
    """Narrow networks, larger tasks, fewer and larger inner steps and a fast critic, selected by validation on CUB."""
    return ZSMLConfig(
        epochs=20,
        shots=10,
        queries=10,
        final_relu=dataset.nonnegative,
        lr=rate(dataset, 2e-4),
        critic_lr=rate(dataset, 1e-3),
        inner_lr=rate(dataset, 1e-2),
    )


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(5e-5, 2e-3, log=True),
    "critic_lr": Range(1e-5, 3e-3, log=True),
    "inner_lr": Range(1e-4, 2e-2, log=True),
    "epochs": Range(5, 40, log=True, whole=True),
    "classification_weight": Range(0.3, 20.0, log=True),
    "synthesized": Range(50, 600, log=True, whole=True),
}
GRID: Space = {
    "lr": Choice((1e-4, 2e-4, 5e-4)),
    "critic_lr": Choice((1e-4, 1e-3)),
    "classification_weight": Choice((1.0, 3.0, 10.0)),
}
METHOD = late_method("zsml", ZSMLConfig, RECIPES, SPACE, GRID, sees_unseen=True)
