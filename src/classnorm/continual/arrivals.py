"""`Arrivals`: hard streams, whose rows or attributes do not simply arrive with the task of their class."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from classnorm.settings import Config, Share, at_least

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Arrivals(Config):
    """How rows and attributes arrive. A class is first met in its own task, so it is unseen until then."""

    blurry: Share = 0.0
    """Share of the training rows of each class that arrive in later tasks, each row in a random one."""
    returning: Share = 0.0
    """Share of the classes of each task that return: half of their training rows arrive in one later task."""
    imbalance: Annotated[float, at_least(1)] = 1.0
    """Training rows per class in the richest task relative to the poorest; others are in between on a log scale."""
    late_attributes: Share = 0.0
    """Share of the attributes that are unknown (0) at first and become known in the course of the tasks."""
    rows_at_once: Annotated[int, at_least(0)] = 0
    """Training rows that arrive together and do not come back; 0 is all rows of a task."""

    def changed(self) -> dict[str, Any]:
        """The options that are set; none for a plain stream."""
        return {f.name: v for f in dataclasses.fields(self) if (v := getattr(self, f.name)) != f.default}

    def kept_rows(self, train_rows: IntArray, labels: IntArray, tasks: Sequence[IntArray], seed: int) -> IntArray:
        """The training rows that are left of a balanced stream, at least one of each class.

        Args:
            labels: [n_rows], class of every row of the dataset.
            tasks: classes of each task.
        """
        if self.imbalance == 1.0:
            return train_rows
        generator = np.random.default_rng([seed, 2])
        exponents = generator.permutation(len(tasks)) / max(len(tasks) - 1, 1)
        kept = []
        for task, exponent in zip(tasks, exponents, strict=True):
            for label in task:
                rows = generator.permutation(train_rows[labels[train_rows] == label])
                kept.append(rows[: max(1, round(len(rows) * self.imbalance**-exponent))])
        return np.sort(np.concatenate(kept))

    def row_tasks(self, train_rows: IntArray, labels: IntArray, tasks: Sequence[IntArray], seed: int) -> IntArray:
        """[n_rows], the task in which each row arrives. At least one row of a class arrives in its own task."""
        own = np.empty(sum(map(len, tasks)), dtype=np.int64)
        for number, task in enumerate(tasks):
            own[task] = number
        arrival: IntArray = own[labels]
        last = len(tasks) - 1
        generator = np.random.default_rng([seed, 3])
        for number, task in enumerate(tasks[:-1]):
            returning = generator.permutation(task)[: round(self.returning * len(task))]
            for label in task:
                rows = generator.permutation(train_rows[labels[train_rows] == label])
                late = rows[: min(int(self.blurry * len(rows)), len(rows) - 1)]
                arrival[late] = generator.integers(number + 1, last + 1, len(late))
                if label in returning:
                    rest = rows[len(late) :]
                    arrival[rest[: len(rest) // 2]] = generator.integers(number + 1, last + 1)
        return arrival

    def attribute_tasks(self, n_attributes: int, n_tasks: int, seed: int) -> IntArray:
        """[d_a], the task from which each attribute is known. The late ones are dealt evenly to the later tasks."""
        known = np.zeros(n_attributes, dtype=np.int64)
        if n_tasks > 1:
            late = np.random.default_rng([seed, 4]).permutation(n_attributes)
            late = late[: round(self.late_attributes * n_attributes)]
            known[late] = 1 + np.arange(len(late)) % (n_tasks - 1)
        return known


PLAIN = Arrivals()
"""Every row arrives with the task of its class."""
