"""A memory of a few training rows per class, shared by A-GEM and experience replay."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from classnorm.continual.strategies.settings import MemoryConfig
from classnorm.continual.strategies.strategy import GradientStrategy, StreamProblem


class MemoryStrategy(GradientStrategy):
    """Remembers the row numbers of some rows of every task."""

    config: MemoryConfig

    def __init__(self, problem: StreamProblem, config: MemoryConfig) -> None:
        super().__init__(problem, config)
        self.memory = problem.rows[0][:0]

    def remembered(self) -> Tensor:
        """A random batch of the memory, or all of it if it is smaller."""
        return self.shuffled(self.memory)[: self.config.memory_batch]

    def after_task(self, task: int) -> None:
        rows = self.shuffled(self.problem.rows[task])
        labels = self.problem.labels[rows]
        rows = rows[labels.argsort(stable=True)]
        count = torch.bincount(labels)
        first = (count.cumsum(0) - count).repeat_interleave(count)  # position of the first row of each row's class
        rank = torch.arange(len(rows), device=rows.device) - first
        known = torch.bincount(self.problem.labels[self.memory], minlength=len(count))
        rank += known[self.problem.labels[rows]]  # a class that returns has some rows in the memory already
        self.memory = torch.cat([self.memory, rows[rank < self.config.memory_per_class]])

    def state(self) -> dict[str, Tensor]:
        return {"memory": self.memory}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.memory = state["memory"]

    def stored_bytes(self, tasks: int) -> int:
        return self.problem.bytes_of(len(self.memory))
