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

from classnorm.data.dataset import IntArray
from classnorm.data.row_store import RowStore, read_ahead, row_blocks
from classnorm.training.seeding import seeded

__all__ = ["ShuffledPools", "StoredRows"]

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


@dataclass(frozen=True, eq=False)
class ShuffledPools:
    """Every row once per epoch, in an order that depends on (seed, epoch); the last batch may be smaller.

    If all rows fit into one pool, the order is that of rows in memory.
    """

    rows: StoredRows
    labels: Tensor
    size: int
    seed: int

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.size)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and labels of each batch of an epoch."""
        for positions, pool, order in read_ahead(self._read, self._pools(number)):
            labels = self.labels[torch.from_numpy(positions).to(self.labels.device)]
            for batch in torch.split(order, self.size):
                features = self.rows.prepared(pool.index_select(0, batch))
                yield features, labels.index_select(0, batch.to(labels.device))

    def _read(self, pool: tuple[IntArray, Tensor]) -> tuple[IntArray, Tensor, Tensor]:
        positions, order = pool
        return positions, torch.from_numpy(self.rows.store.take(self.rows.rows[positions])), order

    def _pools(self, number: int) -> Iterator[tuple[IntArray, Tensor]]:
        """Positions of the rows of each pool, ascending, and the order in which they train."""
        n, block = len(self.rows), self.rows.store.block_rows
        blocks = torch.randperm(math.ceil(n / block), generator=seeded(self.seed, number, 1)).numpy()
        sequence = (block * blocks[:, None] + np.arange(block)).reshape(-1)
        sequence = self._by_row[sequence[sequence < n]]
        row_bytes = self.rows.store.shape[1] * self.rows.store.dtype.itemsize
        length = self.size * max(1, _POOL_BYTES // row_bytes // self.size)  # no batch is in two pools
        generator = seeded(self.seed, number)
        for start in range(0, n, length):
            positions = np.sort(sequence[start : start + length])
            yield positions, torch.randperm(len(positions), generator=generator)

    @cached_property
    def _by_row(self) -> IntArray:
        """Positions in the order of the store."""
        return np.argsort(self.rows.rows, kind="stable")
