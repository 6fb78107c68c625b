"""Settings of SGMA."""

from __future__ import annotations

import math
from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.parts import EmbedderConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeNormalizationKind
from classnorm.settings import require
from classnorm.training import Schedule

__all__ = ["METHOD", "SGMAConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class SGMAConfig(EmbedderConfig):
    """Settings of SGMA. The defaults are the recipe `reference`, for pooled features."""

    epochs: int = 12
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-3
    schedule: Schedule = "cosine"
    attribute_normalization: AttributeNormalizationKind = "unit-plain"
    positions: int = 1
    """Positions of the feature map in a row; recipes take it from the dataset; with 1 there are no parts."""
    parts: int = 2
    """Parts with an attention map each; 0 uses the mean over positions alone."""
    hidden: int = 256
    """Hidden units of the channel attention of each part."""
    sharpness: float = 1.0
    """Contrast of the attention maps: scale of their responses, which have unit variance over the positions."""
    attention_weight: float = 1.0
    """Weight of the compactness and diversity of attention maps in the loss."""
    triplet_weight: float = 1.0
    """Weight of the class-center triplet loss."""

    def check(self) -> None:
        super().check()
        least = {"positions": 1, "parts": 0, "attention_weight": 0, "triplet_weight": 0}
        require(self, positive=["sharpness"], at_least=least)
        if math.isqrt(self.positions) ** 2 != self.positions:
            raise ConfigError(f"positions is {self.positions}; it must be a square number, as feature maps are square")


def paper(dataset: ZeroShotDataset) -> SGMAConfig:
    """The published margins and two parts, without calibration; of the schedule we know too little to follow it."""
    return SGMAConfig(epochs=30, batch_size=32, positions=dataset.positions, calibration="none")


def reference(dataset: ZeroShotDataset) -> SGMAConfig:
    """A short schedule, selected by validation on feature maps of CUB."""
    return SGMAConfig(positions=dataset.positions)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(2e-4, 5e-3, log=True),
    "epochs": Range(8, 40, log=True, whole=True),
    "weight_decay": Range(1e-6, 1e-3, log=True),
    "sharpness": Range(0.5, 5.0, log=True),
    "parts": Choice((1, 2, 4)),
    "triplet_weight": Range(0.1, 3.0, log=True),
}
GRID: Space = {
    "lr": Choice((5e-4, 2e-3)),
    "sharpness": Choice((1.0, 3.0)),
    "triplet_weight": Choice((0.3, 1.0)),
}
METHOD = late_method("sgma", SGMAConfig, RECIPES, SPACE, GRID, parallel=True)
