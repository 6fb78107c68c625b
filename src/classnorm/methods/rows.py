"""The training rows of a fit: as tensors, their moments, mapped by a geometry, and samples of their classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.data.row_store import RowStore
from classnorm.errors import ConfigError
from classnorm.nn import ClassSample, FeatureGeometry, FeatureMoments, sample_classes
from classnorm.training import SINGLE_PROCESS, Processes, SharedWork, StoredRows, seeded

_BLOCK = 1024  # rows mapped at a time, to keep temporaries in the cache
_ALL_UP_TO = 2000  # seen classes, for `sampled_classes="auto"`
_SAMPLE = 1024
_STREAM = 1  # tells the draws of a sample from others of the same step

F = TypeVar("F", bound="Tensor | StoredRows")


@dataclass(frozen=True)
class TrainingRows(Generic[F]):
    """The training rows as tensors, the only data a fit may use."""

    features: F
    """[n, d_z], float32"""
    labels: Tensor
    """[n], indices into the seen classes"""
    descriptors: Tensor
    """[n_seen, d_a] of the seen classes"""

    @staticmethod
    def of(dataset: ZeroShotDataset, device: torch.device) -> TrainingRows[Tensor]:
        features = torch.from_numpy(dataset.loaded(dataset.split.train))
        return TrainingRows(features.to(device), *_seen_classes(dataset, device))

    @staticmethod
    def stored(dataset: ZeroShotDataset, device: torch.device) -> TrainingRows[Tensor | StoredRows]:
        """Rows of a store stay there: for methods that do not need them all at once."""
        if not isinstance(dataset.features, RowStore):
            return TrainingRows.of(dataset, device)  # type: ignore[return-value]  # frozen, so a union holds a tensor
        features = StoredRows(dataset.features, dataset.split.train, device)
        return TrainingRows(features, *_seen_classes(dataset, device))


def _seen_classes(dataset: ZeroShotDataset, device: torch.device) -> tuple[Tensor, Tensor]:
    """Labels [n] of the training rows as indices into the seen classes, and the descriptors of these."""
    seen = np.flatnonzero(dataset.seen)
    if len(seen) < 2:
        raise ConfigError(f"{dataset.name}: training needs at least 2 seen classes, there is {len(seen)}")
    labels = torch.from_numpy(np.searchsorted(seen, dataset.labels[dataset.split.train]))
    return labels.to(device), torch.from_numpy(dataset.descriptors[seen]).to(device)


def row_moments(
    dataset: ZeroShotDataset,
    rows: TrainingRows[Any],
    power: float,
    shared: SharedWork | None = None,
    processes: Processes = SINGLE_PROCESS,
) -> FeatureMoments:
    """The moments of the training rows by seen class, the sum of those of their cells if work is shared.

    Rows that stay in files are read once, in blocks.
    """
    total = FeatureMoments(dataset.d_z, power, len(rows.descriptors))
    if shared is None:
        return _add(total, rows.features, rows.labels, processes)
    cells = shared.cells[dataset.split.train]
    for cell in np.unique(cells):
        inside = np.flatnonzero(cells == cell)
        index = torch.from_numpy(inside)
        # Fits number the classes differently, but in the same order.
        classes, labels = torch.unique(rows.labels[index], return_inverse=True)
        key = ("moments", power, int(cell))
        if key not in shared.results:
            part = rows.features.part(inside) if isinstance(rows.features, StoredRows) else rows.features[index]
            shared.results[key] = _add(FeatureMoments(dataset.d_z, power, len(classes)), part, labels, processes)
        total.add(shared.results[key], classes)
    return total


def _add(
    moments: FeatureMoments, features: Tensor | StoredRows, labels: Tensor, processes: Processes
) -> FeatureMoments:
    """The sums over rows. Each process adds whole blocks, so that their rounding does not depend on who does."""
    size = moments.block_rows
    own = np.flatnonzero(np.arange(len(labels)) // size % processes.count == processes.rank)
    blocks = (
        features.part(own).blocks(size)
        if isinstance(features, StoredRows)
        else torch.split(features, size)[processes.rank :: processes.count]
    )
    if len(own):
        moments.update_blocks(blocks, labels[torch.from_numpy(own).to(labels.device)])
    processes.add_up(moments.counts, moments.sums, moments.products)
    return moments


@torch.no_grad()
def transformed_rows(geometry: FeatureGeometry, features: Tensor | StoredRows) -> Tensor | StoredRows:
    """The training rows mapped by the geometry, on its device; those in files when they are read."""
    projection = geometry.projection
    if isinstance(features, StoredRows):
        return replace(features, device=projection.device, map=geometry)
    transformed = projection.new_empty(len(features), projection.shape[1])
    for block, target in zip(torch.split(features, _BLOCK), torch.split(transformed, _BLOCK), strict=True):
        target.copy_(geometry(block.to(projection.device)))
    return transformed


class ClassSampler:
    """Draws classes for each step; the draws depend only on (seed, step)."""

    def __init__(self, n_classes: int, size: int, seed: int) -> None:
        self.n_classes, self.size, self.seed = n_classes, size, seed
        self.generator = torch.Generator()

    @classmethod
    def of(cls, setting: int | Literal["auto"], n_classes: int, seed: int) -> ClassSampler | None:
        """The sampler for a setting `sampled_classes`; None to train with all classes."""
        size = setting if setting != "auto" else _SAMPLE if n_classes > _ALL_UP_TO else 0
        return cls(n_classes, size, seed) if 0 < size < n_classes else None

    def start(self, step: int) -> None:
        """Seed the draws of a step."""
        seeded(self.seed, step, _STREAM, generator=self.generator)

    def __call__(self, labels: Tensor) -> ClassSample:
        return sample_classes(labels, self.n_classes, self.size, self.generator)
