"""Settings and helpers of methods that use a feature geometry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.methods.model import RowSource
from classnorm.nn import FeatureGeometry, FeatureMoments
from classnorm.training import ALONE, Processes, SharedWork, StoredRows

_BLOCK = 1024  # rows mapped at a time, to keep temporaries in the cache
_NEAREST = 3  # class means that determine the hubness of a class


def row_moments(
    dataset: ZeroShotDataset,
    rows: RowSource,
    power: float,
    shared: SharedWork | None = None,
    processes: Processes = ALONE,
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
def placed_rows(geometry: FeatureGeometry, features: Tensor | StoredRows) -> Tensor | StoredRows:
    """The training rows mapped by the geometry, on its device; those in files when they are read."""
    projection = geometry.projection
    if isinstance(features, StoredRows):
        return replace(features, device=projection.device, map=geometry)
    placed = projection.new_empty(len(features), projection.shape[1])
    for block, place in zip(torch.split(features, _BLOCK), torch.split(placed, _BLOCK), strict=True):
        place.copy_(geometry(block.to(projection.device)))
    return placed


def with_hubness(prototypes: Tensor, means: Tensor, hubness: float) -> Tensor:
    """[n_classes, k] → [n_classes, k + 1]; the last column is added to the cosines with the class.

    Args:
        means: [n_seen, k], unit-length means of the seen classes.
    """
    near = (F.normalize(prototypes, dim=1) @ means.T).topk(min(_NEAREST, means.shape[0]), dim=1).values
    return torch.cat([prototypes, -hubness * near.mean(dim=1, keepdim=True)], dim=1)
