"""Rivals whose prototypes come from an attribute embedder, and episodes: losses over the classes of a batch alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from classnorm.methods.method import DescriptorConfig, TrainedMethodConfig
from classnorm.methods.model import ZeroShotModel
from classnorm.nn import AttributeEmbedder
from classnorm.settings import Width
from classnorm.training import Schedule, seeded


@dataclass(frozen=True, kw_only=True)
class EmbedderConfig(TrainedMethodConfig, DescriptorConfig):
    """Settings of a trained embedder."""

    hidden: Width = 1200
    """Width of the embedder's hidden layers."""


class EmbedderModel(ZeroShotModel):
    """An attribute embedder; subclasses define the logits.

    Args:
        descriptors: [n_seen, d_a] of the seen classes; None for a model to load weights into.
        class_norm: class standardization before the last layer, and proper variance for that layer.
    """

    def __init__(
        self,
        config: EmbedderConfig,
        d_a: int,
        d_z: int,
        seed: int = 0,
        descriptors: Tensor | None = None,
        *,
        layers: int = 2,
        final_relu: bool = True,
        class_norm: bool = False,
    ) -> None:
        super().__init__()
        self.embedder = AttributeEmbedder(
            d_a,
            d_z,
            layers=layers,
            hidden=config.hidden,
            attribute_normalization=config.attribute_normalization,
            normalization="class" if class_norm else "none",
            final_relu=final_relu,
            init="proper" if class_norm else "torch",
            seed=seed,
            descriptors=torch.zeros(2, d_a) if descriptors is None else descriptors.cpu(),
        )

    def prototypes(self, descriptors: Tensor) -> Tensor:
        prototypes: Tensor = self.embedder(descriptors)
        return prototypes


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
