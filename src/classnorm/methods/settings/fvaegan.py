"""Settings of f-VAEGAN."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.generative import GameConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "FVAEGANConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class FVAEGANConfig(GameConfig):
    """Settings of f-VAEGAN. The defaults are the recipe `reference`."""

    hidden: int = 512
    """Hidden units of the generator, the encoder and the critic."""
    adversarial_weight: float = 10.0
    """Weight γ of the critic's judgement, beside the loss of the autoencoder."""
    encoded_noise: bool = False
    """Show the critic features generated from codes of real features, as later public code does, not from noise."""

    def check(self) -> None:
        super().check()
        require(self, at_least={"adversarial_weight": 0})


def paper(dataset: ZeroShotDataset) -> FVAEGANConfig:
    """The published networks and weights, without calibration."""
    return FVAEGANConfig(
        epochs=300,
        lr=1e-4,
        hidden=4096,
        attribute_normalization="unit-plain",
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> FVAEGANConfig:
    """Narrower networks and larger steps, selected by validation on CUB."""
    return FVAEGANConfig()


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(5e-5, 2e-3, log=True),
    "epochs": Range(2, 20, log=True, whole=True),
    "hidden": Choice((512, 1024, 2048)),
    "batch_size": Choice((64, 128, 256)),
    "adversarial_weight": Range(1.0, 100.0, log=True),
    "synthesized": Range(50, 600, log=True, whole=True),
}
GRID: Space = {
    "lr": Choice((3e-4, 1e-3)),
    "adversarial_weight": Choice((1.0, 10.0, 100.0)),
    "synthesized": Choice((100, 300)),
}
METHOD = late_method("fvaegan", FVAEGANConfig, RECIPES, SPACE, GRID)
