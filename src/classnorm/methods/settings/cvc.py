"""Settings of CVC-ZSL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.parts import EpisodeConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "CVCConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class CVCConfig(EpisodeConfig):
    """Settings of CVC-ZSL. The defaults are the recipe `reference`."""

    epochs: int = 40
    """Epochs, each with as many episodes as it takes to draw the number of training rows; the final model is kept."""
    batch_size: int = 128
    """Rows per episode, batch_size / ways from each of its classes."""
    ways: int = 32
    """Classes per episode, at most all seen classes."""
    grad_clip: float = 1.0
    hidden: int = 1600
    final_relu: bool = True
    """ReLU on the prototypes, for non-negative features; recipes set it to match the data."""
    logits: Literal["cosine", "dot"] = "cosine"
    """Logits: `cosine` times a learnt scale, or the `dot` product."""
    scale: float = 10.0
    """Initial scale of the cosine."""

    def check(self) -> None:
        super().check()
        require(self, positive=["scale"], at_least={"ways": 2})
        if self.batch_size < self.ways:
            raise ConfigError(
                f"batch_size is {self.batch_size}; it must be at least the {self.ways} ways, one row for each class"
            )


_PAPER_DECAY = {"AWA1": 1e-4, "AWA2": 1e-3, "CUB": 1e-3, "SUN": 1e-5}


def paper(dataset: ZeroShotDataset) -> CVCConfig:
    """The authors' schedule: a million episodes of 32 classes × 4 rows (AwA1: 16 × 4), the learning rate halved every
    200,000 (AwA1: 500,000). Other datasets use the settings of CUB."""
    benchmark = dataset.benchmark
    ways, drop_at = (16, 0.5) if benchmark == "AWA1" else (32, 0.2)
    rows_per_episode = 4 * min(ways, int(dataset.seen.sum()))
    return CVCConfig(
        epochs=max(1, round(1_000_000 / -(-len(dataset.split.train) // rows_per_episode))),
        batch_size=4 * ways,
        ways=ways,
        lr=1e-5,
        weight_decay=_PAPER_DECAY.get(benchmark or "", 1e-3),
        schedule="steps",
        lr_drop=0.5,
        lr_drop_at=drop_at,
        attribute_normalization="none",
        final_relu=dataset.nonnegative,
    )


def reference(dataset: ZeroShotDataset) -> CVCConfig:
    """A short schedule, with the learning rate selected by validation."""
    return CVCConfig(final_relu=dataset.nonnegative)


RECIPES: Recipes = {
    "paper": paper,
    "reference": reference,
    "class-norm": lambda dataset: reference(dataset).replace(class_norm=True),
}
SPACE: Space = {
    "lr": Range(2e-4, 2e-3, log=True),
    "epochs": Range(15, 60, log=True, whole=True),
    "class_norm": Choice((False, True)),
    "weight_decay": Range(1e-6, 1e-3, log=True),
}
GRID: Space = {
    "lr": Choice((5e-4, 1e-3)),
    "epochs": Choice((20, 40)),
    "class_norm": Choice((False, True)),
}
METHOD = late_method("cvc", CVCConfig, RECIPES, SPACE, GRID)
