"""Settings of f-VAEGAN."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.generative import REACH, GameConfig, rate
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "FVAEGANConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class FVAEGANConfig(GameConfig):
    """Settings of f-VAEGAN. The recipe `reference` sets what differs from the defaults."""

    batch_size: int = 128
    classifier_epochs: int = 12
    epochs: int = 11
    lr: float = 1e-3
    """Learning rate of generator, encoder and critic (Adam, β 0.5 and 0.999)."""
    hidden: int = 512
    """Hidden units of the generator, the encoder and the critic."""
    critic_steps: int = 1
    adversarial_weight: float = 1.0
    """Weight γ of the critic's judgement, beside the loss of the autoencoder."""
    encoded_noise: bool = True
    """Show the critic features generated from codes of real features, as later public code does, not from noise."""

    def check(self) -> None:
        super().check()
        require(self, at_least={"adversarial_weight": 0})


def paper(dataset: ZeroShotDataset) -> FVAEGANConfig:
    """The published networks and weights, without calibration; the schedule is that of TF-VAEGAN on CUB."""
    return FVAEGANConfig(
        batch_size=64,
        classifier_epochs=25,
        epochs=300,
        lr=1e-4,
        hidden=4096,
        critic_steps=5,
        adversarial_weight=10.0,
        encoded_noise=False,
        attribute_normalization="unit-plain",
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> FVAEGANConfig:
    """Narrow networks, large steps and a weaker critic, selected by validation on CUB."""
    return FVAEGANConfig(lr=rate(dataset, 1e-3), classifier_reach=REACH)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(5e-5, 2e-3, log=True),
    "epochs": Range(4, 30, log=True, whole=True),
    "hidden": Choice((512, 1024, 2048)),
    "batch_size": Choice((64, 128, 256)),
    "critic_steps": Choice((1, 2, 5)),
    "adversarial_weight": Range(0.1, 30.0, log=True),
    "encoded_noise": Choice((False, True)),
    "synthesized": Range(50, 600, log=True, whole=True),
}
GRID: Space = {
    "lr": Choice((3e-4, 1e-3)),
    "adversarial_weight": Choice((1.0, 3.0, 10.0)),
    "synthesized": Choice((100, 300)),
}
METHOD = late_method("fvaegan", FVAEGANConfig, RECIPES, SPACE, GRID, sees_unseen=True)
