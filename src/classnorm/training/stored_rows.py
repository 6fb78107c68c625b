"""Training rows that stay in files: read in shuffled blocks, the next ones while the current ones train.

An epoch goes over pools of rows. A pool has many blocks of consecutive rows, drawn from the whole data, and its rows
are shuffled, so that batches mix even if the data are sorted by class. Only two pools are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from classnorm.data.row_store import IntArray, RowStore, read_ahead, row_blocks
from classnorm.training.distributed import SINGLE_PROCESS, Processes
from classnorm.training.epochs import seeded

_POOL_BYTES = 1 << 28  # of a pool; two are in memory at a time


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Some rows of a store as float32 tensors on a device, after an optional map: [n, d_z] → [n, d]."""

    store: RowStore
    rows: IntArray
    device: torch.device
    map: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> StoredRows:
        """The rows after `function`, which must treat each row alone."""
        return replace(self, map=function)

    def part(self, positions: IntArray) -> StoredRows:
        """Some of the rows."""
        return replace(self, rows=self.rows[positions])

    def blocks(self, size: int) -> Iterator[Tensor]:
        """All rows in order, in blocks."""
        for _, block in row_blocks(self.store.view(self.rows), size):
            yield self.prepared(torch.from_numpy(block))

    @torch.no_grad()
    def prepared(self, rows: Tensor) -> Tensor:
        """Rows as read → on the device, after the map."""
        rows = rows.to(self.device).float()
        return rows if self.map is None else self.map(rows)

    def __getitem__(self, positions: Tensor) -> Tensor:
        return self.prepared(torch.from_numpy(self.store.take(self.rows[positions.cpu().numpy()])))


_Batches = list[tuple[Tensor, float]]


@dataclass(frozen=True, eq=False)
class ShuffledPools:
    """Every row once per epoch, in an order that depends on (seed, epoch); the last batch may be smaller.

    If all rows fit into one pool, the order is that of rows in memory.
    """

    rows: StoredRows
    labels: Tensor
    size: int
    seed: int
    processes: Processes = SINGLE_PROCESS
    """Each reads its part of every pool, and trains on those rows of a batch that are in it."""

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.size)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Features and labels of this process's part of each batch, and its share of the batch."""
        for positions, pool, batches in read_ahead(self._read, self._pools(number)):
            labels = self.labels[torch.from_numpy(positions).to(self.labels.device)]
            for rows, share in batches:
                features = self.rows.prepared(pool.index_select(0, rows))
                yield features, labels.index_select(0, rows.to(labels.device)), share

    def _read(self, pool: tuple[IntArray, _Batches]) -> tuple[IntArray, Tensor, _Batches]:
        positions, batches = pool
        return positions, torch.from_numpy(self.rows.store.take(self.rows.rows[positions])), batches

    def _pools(self, number: int) -> Iterator[tuple[IntArray, _Batches]]:
        """Positions of the rows of each pool that this process reads, ascending, and its part of each batch of them."""
        n, block = len(self.rows), self.rows.store.block_rows
        blocks = torch.randperm(math.ceil(n / block), generator=seeded(self.seed, number, 1)).numpy()
        sequence = (block * blocks[:, None] + np.arange(block)).reshape(-1)
        sequence = self._by_row[sequence[sequence < n]]
        row_bytes = self.rows.store.shape[1] * self.rows.store.dtype.itemsize
        length = self.size * max(1, _POOL_BYTES // row_bytes // self.size)  # no batch is in two pools
        generator = seeded(self.seed, number)
        for start in range(0, n, length):
            positions = np.sort(sequence[start : start + length])
            order = torch.randperm(len(positions), generator=generator)
            part = self.processes.part(len(positions))
            batches = [_inside(batch, part) for batch in torch.split(order, self.size)]
            yield positions[part if part.stop > part.start else slice(1)], batches

    @cached_property
    def _by_row(self) -> IntArray:
        """Positions in the order of the store."""
        return np.argsort(self.rows.rows, kind="stable")


def _inside(batch: Tensor, part: slice) -> tuple[Tensor, float]:
    """The rows of a batch that are in a part, counted from its start, and their share of the batch.

    Without any, it is the first row with share 0, as in `Processes.batch_part`.
    """
    rows = batch[(batch >= part.start) & (batch < part.stop)] - part.start
    return (rows, len(rows) / len(batch)) if len(rows) else (torch.zeros(1, dtype=torch.int64), 0.0)
