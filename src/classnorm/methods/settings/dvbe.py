"""Settings of DVBE."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.parts import EmbedderConfig, NormalizedConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import added_setting, require
from classnorm.training import Schedule

__all__ = ["METHOD", "DVBEConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class DVBEConfig(EmbedderConfig, NormalizedConfig):
    """Settings of DVBE. The defaults are the recipe `reference`, for pooled features."""

    epochs: int = 15
    batch_size: int = 128
    lr: float = 1e-3
    schedule: Schedule = "cosine"
    hidden: int = 1024
    channels: int = 64
    """Channels of each of the two projections whose products are the second-order features."""
    positions: int = added_setting(1)
    """Positions of the feature map in a row, over which the products are summed; recipes take it from the dataset."""
    margin_width: float = 1.0
    """Width σ of the adaptive margin: smaller ones are stricter with rows that are not yet recognised; 0 has none."""
    gamma: float = 6.0
    """Scale γ of the alignment: the scores of unseen classes are γ² times cosines."""
    gate_weight: float = 0.5
    """Weight of the entropy over seen classes in the scores of unseen ones; with a large one it alone decides."""
    final_relu: bool = True
    """ReLU on the prototypes, for non-negative features; recipes set it to match the data."""

    def check(self) -> None:
        super().check()
        require(self, positive=["gamma"], at_least={"channels": 1, "positions": 1, "margin_width": 0, "gate_weight": 0})


def paper(dataset: ZeroShotDataset) -> DVBEConfig:
    """The schedule of the released code for a fixed backbone, with Adam for both heads (there the classifier has SGD).
    The entropy alone decides, with a threshold from validation."""
    return DVBEConfig(
        epochs=90,
        schedule="steps",
        lr_drop_at=1 / 3,
        channels=256,
        positions=dataset.positions,
        margin_width=0.5,
        gate_weight=100.0,
        attribute_normalization="none",
        final_relu=dataset.nonnegative,
        calibration="validation:bias",
    )


def reference(dataset: ZeroShotDataset) -> DVBEConfig:
    """A short schedule; entropy and alignment decide together. Selected by validation on CUB."""
    return DVBEConfig(positions=dataset.positions, final_relu=dataset.nonnegative)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(3e-4, 3e-3, log=True),
    "epochs": Range(8, 40, log=True, whole=True),
    "channels": Choice((32, 64, 128)),
    "margin_width": Range(0.3, 3.0, log=True),
    "gamma": Range(3.0, 9.0),
    "gate_weight": Range(0.1, 3.0, log=True),
}
GRID: Space = {
    "lr": Choice((5e-4, 1e-3)),
    "gamma": Choice((4.0, 6.0)),
    "gate_weight": Choice((0.0, 0.5, 1.0)),
}
METHOD = late_method("dvbe", DVBEConfig, RECIPES, SPACE, GRID, parallel=True)
