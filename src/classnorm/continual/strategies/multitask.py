"""Multi-task: trains on the data of all tasks so far, an upper bound that no continual learner is allowed."""

from __future__ import annotations

import torch
from torch import Tensor

from classnorm.continual.strategies.strategy import GradientStrategy


class Multitask(GradientStrategy):
    """An epoch is a random sample of all rows so far, of the size of the task: other strategies take as many steps."""

    def rows(self, task: int, epoch: int) -> Tensor:
        self.reseed(task, epoch)
        return self.shuffled(torch.cat(self.problem.rows[: task + 1]))[: len(self.problem.rows[task])]

    def classes(self, task: int) -> range:
        return self.seen(task)

    def stored_bytes(self, tasks: int) -> int:
        return self.problem.bytes_of(sum(map(len, self.problem.rows[:tasks])))
