"""Methods whose loss is over the classes of a batch instead of all seen classes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from classnorm.training import Schedule, seeded
from classnorm_lab.rivals.parts.embedding import EmbedderConfig


@dataclass(frozen=True, kw_only=True)
class EpisodeConfig(EmbedderConfig):
    """Settings of an embedder with optional class normalization."""

    schedule: Schedule = "cosine"
    class_norm: bool = False
    """Class standardization before the embedder's last layer, and proper variance for that layer."""


class Episodes:
    """Batches of `ways` distinct classes with `shots` rows each.

    Rows are distinct if the class has at least `shots`. The episodes of an epoch depend only on (seed, epoch).

    Args:
        count: episodes of an epoch; by default as many as have the number of all rows.
    """

    def __init__(self, labels: Tensor, ways: int, shots: int, seed: int, count: int = 0) -> None:
        self.device = labels.device
        self.rows = labels.cpu().argsort(stable=True)  # rows of class 0, then of class 1, …
        self.count = labels.cpu().bincount()  # [n_classes]
        self.first = self.count.cumsum(0) - self.count
        self.ways, self.shots, self.seed = min(ways, len(self.count)), shots, seed
        self.episodes = count or math.ceil(len(self.rows) / (self.ways * shots))

    def __len__(self) -> int:
        return self.episodes

    def epoch(self, number: int) -> Iterator[Tensor]:
        generator = seeded(self.seed, number)
        classes = torch.rand(len(self), len(self.count), generator=generator).topk(self.ways, dim=1).indices
        count = self.count[classes]  # [episodes, ways]
        chosen = torch.empty(*classes.shape, self.shots, dtype=torch.int64)
        # Floyd's sampling: shot i is drawn from the first `last + 1` rows of the class, and is row `last` if the draw
        # is already taken. A class with too few rows repeats some.
        for i in range(self.shots):
            last = torch.where(count < self.shots, count, count - self.shots + i + 1) - 1
            drawn = (torch.rand(classes.shape, generator=generator, dtype=torch.float64) * (last + 1)).long()
            taken = (chosen[..., :i] == drawn[..., None]).any(dim=2) & (count >= self.shots)
            chosen[..., i] = torch.where(taken, last, drawn)
        yield from self.rows[chosen + self.first[classes][..., None]].flatten(1).to(self.device)


def classes_of(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct classes of a batch [k], and the position of each row's class among them [b]."""
    classes, targets = labels.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    return classes, targets
