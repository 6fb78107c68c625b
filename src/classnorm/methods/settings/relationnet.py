"""Settings of RelationNet."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.parts import EpisodeConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.settings import require

__all__ = ["METHOD", "RelationNetConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class RelationNetConfig(EpisodeConfig):
    """Settings of RelationNet. The defaults are the recipe `reference`."""

    epochs: int = 10
    batch_size: int = 32
    """Rows per step; each is scored against the classes of the batch."""
    lr: float = 3e-4
    weight_decay: float = 1e-5
    """L2 penalty of the embedder's weights; the relation network has none."""
    relation_hidden: int = 1200
    """Width of the relation network."""
    start_at_base_rate: bool = True
    """Start the last bias so that the scores equal the share of matching pairs instead of about 0.5. This skips a
    plateau of many epochs that only learns that most pairs do not match."""

    def check(self) -> None:
        super().check()
        require(self, at_least={"relation_hidden": 1})


def paper(dataset: ZeroShotDataset) -> RelationNetConfig:
    """The published schedule: 200,000 steps and widths of 1200 (AwA and other datasets of up to 100 classes: 500,000
    steps, widths 1024 and 400), the learning rate halved every 30,000 steps."""
    benchmark = dataset.benchmark
    small = benchmark in ("AWA1", "AWA2") or (benchmark is None and dataset.n_classes <= 100)
    steps = 500_000 if small else 200_000
    return RelationNetConfig(
        epochs=max(1, round(steps / -(-len(dataset.split.train) // 32))),
        lr=1e-5,
        schedule="steps",
        lr_drop=0.5,
        lr_drop_at=30_000 / steps,
        hidden=1024 if small else 1200,
        relation_hidden=400 if small else 1200,
        attribute_normalization="none",
        start_at_base_rate=False,
    )


def reference(dataset: ZeroShotDataset) -> RelationNetConfig:
    """A short schedule, with the better of two learning rates on validation; more epochs still help."""
    return RelationNetConfig()


RECIPES: Recipes = {
    "paper": paper,
    "reference": reference,
    "class-norm": lambda dataset: reference(dataset).replace(class_norm=True),
}
SPACE: Space = {
    "lr": Range(1e-4, 2e-3, log=True),
    "epochs": Range(4, 16, log=True, whole=True),
    "class_norm": Choice((False, True)),
    "weight_decay": Range(1e-6, 1e-3, log=True),
}
GRID: Space = {
    "lr": Choice((3e-4, 1e-3)),
    "epochs": Choice((4, 8)),
    "class_norm": Choice((False, True)),
}
METHOD = late_method("relationnet", RelationNetConfig, RECIPES, SPACE, GRID)
