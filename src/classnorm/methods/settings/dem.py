"""Settings of DEM."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.parts import EmbedderConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "DEMConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class DEMConfig(EmbedderConfig):
    """Settings of DEM. The defaults are the recipe `reference`."""

    epochs: int = 40
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-4
    """L2 penalty of the weights, the main regulariser here."""
    layers: int = 2
    """Linear layers of the embedder; 1 is linear regression on the descriptors."""
    final_relu: bool = True
    """ReLU on the prototypes, for non-negative features; recipes set it to match the data."""

    def check(self) -> None:
        super().check()
        require(self, at_least={"layers": 1})


def paper(dataset: ZeroShotDataset) -> DEMConfig:
    """The authors' settings for the GBU splits of CUB: a million steps."""
    return DEMConfig(
        epochs=max(1, round(1_000_000 / -(-len(dataset.split.train) // 100))),
        batch_size=100,
        lr=1e-5,
        weight_decay=1e-2,
        schedule="constant",
        attribute_normalization="none",
        final_relu=dataset.nonnegative,
    )


def reference(dataset: ZeroShotDataset) -> DEMConfig:
    """A short, untuned schedule."""
    return DEMConfig(final_relu=dataset.nonnegative)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(2e-4, 5e-3, log=True),
    "weight_decay": Range(1e-6, 1e-3, log=True),
    "epochs": Range(10, 60, log=True, whole=True),
    "hidden": Choice((600, 1200, 2400)),
}
GRID: Space = {
    "lr": Choice((5e-4, 2e-3)),
    "weight_decay": Choice((1e-5, 1e-4)),
    "epochs": Choice((20, 40)),
}
METHOD = late_method("dem", DEMConfig, RECIPES, SPACE, GRID, parallel=True)
