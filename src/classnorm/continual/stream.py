"""`TaskStream`: a dataset split by classes into tasks that arrive one after another.

`StreamOptions` makes it hard: rows or attributes do not simply arrive with the task of their class.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from classnorm.data import ZeroShotDataset
from classnorm.data.row_store import IntArray
from classnorm.errors import ConfigError, DataError
from classnorm.settings import Config, Share, at_least, check_share

if TYPE_CHECKING:
    from torch import Tensor

_PRESETS = {"CUB": 10, "SUN": 15}  # 10 × 20 classes; 3 × 47, then 12 × 48
_DEFAULT_TASKS = 10
_SMALLEST = 2  # classes per task: a single class leaves nothing to discriminate


@dataclass(frozen=True, kw_only=True)
class StreamOptions(Config):
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


PLAIN = StreamOptions()
"""Every row arrives with the task of its class."""


@dataclass(frozen=True, eq=False)
class TaskStream:
    """A sequence of tasks with classes of their own. Use `make`, which also checks it.

    All rows of the dataset take part; at step t the classes of the first t tasks are seen. Rows are row numbers of the
    dataset, also in a part of a stream, so the same `Inputs` serve both.
    """

    dataset: ZeroShotDataset
    tasks: tuple[IntArray, ...]
    """Labels of each task's classes, ascending."""
    train_rows: IntArray
    test_rows: IntArray
    split: Literal["official", "stratified"]
    """Source of the split into training and test rows."""
    seed: int
    classes: IntArray
    """[n_classes], the dataset's index of each class of the stream."""
    row_tasks: IntArray
    """[n_rows of the dataset], the task in which a training row arrives: that of its class, in a plain stream."""
    attribute_tasks: IntArray
    """[d_a], the task from which an attribute is known: the first, in a plain stream."""
    arrivals: StreamOptions

    @classmethod
    def make(
        cls,
        dataset: ZeroShotDataset,
        tasks: int | Sequence[int] | None = None,
        seed: int = 0,
        is_train: npt.ArrayLike | None = None,
        test_share: float = 0.5,
        arrivals: StreamOptions = PLAIN,
    ) -> Self:
        """Shuffle the classes into tasks.

        Args:
            tasks: number of tasks, of nearly equal size (smaller ones first), or the size of each. None is 10 for CUB,
                15 for SUN, else 10, or fewer for few classes.
            seed: determines the order of classes and a stratified split.
            is_train: [n_rows], true for training rows; None is the dataset's official split if it has one, else a
                split stratified by class.
            test_share: share of test rows of each class in a stratified split; a class with two rows or more has at
                least one of each kind.
            arrivals: how rows and attributes arrive; by default every row with its class.

        >>> from classnorm.data import synthetic, SyntheticConfig
        >>> stream = TaskStream.make(synthetic(SyntheticConfig(classes=11, unseen=2, rows=110)), tasks=3)
        >>> [len(task) for task in stream.tasks], len(stream.train_rows), len(stream.test_rows)
        ([3, 4, 4], 55, 55)
        """
        if seed < 0:
            raise ConfigError(f"seed is {seed}; it must be at least 0")
        sizes = task_sizes(dataset, tasks)
        order = np.random.default_rng([seed, 0]).permutation(dataset.n_classes)
        official = is_train if is_train is not None else dataset.is_train
        mask = _stratified(dataset, seed, test_share) if official is None else np.asarray(official, dtype=bool)
        if mask.shape != (dataset.n_rows,):
            raise DataError(f"{dataset.name}: is_train has shape {mask.shape} for {dataset.n_rows} rows; give one each")
        members = tuple(np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1]))
        train_rows = arrivals.kept_rows(np.flatnonzero(mask), dataset.labels, members, seed)
        stream = cls(
            dataset=dataset,
            tasks=members,
            train_rows=train_rows,
            test_rows=np.flatnonzero(~mask),
            split="stratified" if official is None else "official",
            seed=seed,
            classes=np.arange(dataset.n_classes),
            row_tasks=arrivals.row_tasks(train_rows, dataset.labels, members, seed),
            attribute_tasks=arrivals.attribute_tasks(dataset.d_a, len(members), seed),
            arrivals=arrivals,
        )
        stream._check()
        return stream

    def _check(self) -> None:
        name, labels = self.dataset.name, self.labels
        untaught = np.setdiff1d(labels[self.test_rows], labels[self.train_rows])
        if len(untaught):
            raise DataError(
                f"{name}: class {self.class_names[untaught[0]]!r} has test rows but no training row; "
                "correct is_train, or leave the class out"
            )
        for t in range(self.n_tasks):
            for part, rows in (("training", self.train(t)), ("test", self.test(t))):
                if not len(rows):
                    raise DataError(f"{name}: task {t + 1} has no {part} rows; use fewer tasks or correct is_train")

    def seen(self, step: int) -> npt.NDArray[np.bool_]:
        """[n_classes], true for the classes of the first `step` tasks."""
        return np.isin(np.arange(self.n_classes), np.concatenate([[], *self.tasks[:step]]))

    @property
    def n_tasks(self) -> int:
        return len(self.tasks)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.dataset.class_names[c] for c in self.classes)

    @property
    def descriptors(self) -> npt.NDArray[np.float32]:
        """[n_classes, d_a]"""
        return self.dataset.descriptors[self.classes]

    def known_descriptors(self, task: int) -> npt.NDArray[np.float32]:
        """[n_classes, d_a], with 0 for the attributes that are not known yet in a task (numbered from 0)."""
        return np.where(self.attribute_tasks <= task, self.descriptors, np.float32(0.0))

    @cached_property
    def labels(self) -> IntArray:
        """[n_rows of the dataset], −1 for rows of classes outside the stream."""
        label = np.full(self.dataset.n_classes, -1)
        label[self.classes] = np.arange(self.n_classes)
        result: IntArray = label[self.dataset.labels]
        return result

    @property
    def test_labels(self) -> IntArray:
        """[n_test], in the order of `test_rows`."""
        return self.labels[self.test_rows]

    def train(self, task: int) -> IntArray:
        """Training rows that arrive in a task (numbered from 0)."""
        rows: IntArray = self.train_rows[self.row_tasks[self.train_rows] == task]
        return rows

    def test(self, task: int) -> IntArray:
        """Test rows of a task."""
        return self.test_rows[np.isin(self.test_labels, self.tasks[task])]

    def tensors(self, task: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A task as tensors for other libraries: train_x, train_y, test_x, test_y, in the joint label space."""
        import torch

        train, test = self.train(task), self.test(task)
        x, test_x = (torch.from_numpy(self.dataset.loaded(rows)) for rows in (train, test))
        return x, torch.from_numpy(self.labels[train]), test_x, torch.from_numpy(self.labels[test])

    def part(self, start: int, stop: int | None = None) -> Self:
        """The tasks from `start` up to `stop` as a stream, with their classes alone as the label space.

        For example, choose hyperparameters on `part(0, 3)` and report `part(3)`. Rows of these classes that arrive
        in other tasks are left out.
        """
        stop = self.n_tasks if stop is None else stop
        if not 0 <= start < stop <= self.n_tasks:
            raise ConfigError(f"a stream of {self.n_tasks} tasks has no part from {start} to {stop}")
        members = np.sort(np.concatenate(self.tasks[start:stop]))
        arrival = self.row_tasks[self.train_rows]
        kept = np.isin(self.labels[self.train_rows], members) & (arrival >= start) & (arrival < stop)
        return replace(
            self,
            tasks=tuple(np.searchsorted(members, task) for task in self.tasks[start:stop]),
            train_rows=self.train_rows[kept],
            test_rows=self.test_rows[np.isin(self.test_labels, members)],
            classes=self.classes[members],
            row_tasks=self.row_tasks - start,
            attribute_tasks=np.maximum(self.attribute_tasks - start, 0),
        )

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the tasks, of the training and test rows, and of how they arrive in a hard stream."""
        digest = hashlib.sha256()
        parts: list[npt.NDArray[Any]] = [*(self.classes[task] for task in self.tasks), self.train_rows, self.test_rows]
        if self.arrivals.changed():
            at_once = np.array([self.arrivals.rows_at_once])
            parts += [self.row_tasks[self.train_rows], self.attribute_tasks, at_once]
        for part in parts:
            digest.update(part.astype("<i8").tobytes() + b"|")
        return digest.hexdigest()


def task_sizes(dataset: ZeroShotDataset, tasks: int | Sequence[int] | None) -> list[int]:
    """Number of classes of each task."""
    k, most = dataset.n_classes, dataset.n_classes // _SMALLEST
    if tasks is None:
        tasks = max(1, min(_PRESETS.get(dataset.benchmark or "", _DEFAULT_TASKS), most))
    if isinstance(tasks, int):
        if not 1 <= tasks <= most:
            raise ConfigError(
                f"{dataset.name}: {k} classes cannot make {tasks} tasks of at least {_SMALLEST} classes; "
                f"set `tasks` to 1 to {most}"
            )
        larger = k % tasks
        return [k // tasks] * (tasks - larger) + [k // tasks + 1] * larger
    sizes = list(tasks)
    if sum(sizes) != k or min(sizes, default=0) < _SMALLEST:
        raise ConfigError(
            f"{dataset.name}: task sizes {', '.join(map(str, sizes))} must be at least {_SMALLEST} each "
            f"and add up to the {k} classes, not {sum(sizes)}"
        )
    return sizes


def _stratified(dataset: ZeroShotDataset, seed: int, test_share: float) -> npt.NDArray[np.bool_]:
    """[n_rows], true for training rows: a random share of each class."""
    check_share(test_share=test_share)
    count = np.bincount(dataset.labels, minlength=dataset.n_classes)
    n_test = np.clip(np.rint(count * test_share).astype(np.int64), 1, np.maximum(count - 1, 0))
    n_test[count < 2] = 0  # a single row is a training row
    shuffled = np.random.default_rng([seed, 1]).permutation(dataset.n_rows)
    by_class = shuffled[np.argsort(dataset.labels[shuffled], kind="stable")]
    rank = np.empty(dataset.n_rows, dtype=np.int64)  # random rank of each row within its class
    rank[by_class] = np.arange(dataset.n_rows) - np.repeat(np.cumsum(count) - count, count)
    result: npt.NDArray[np.bool_] = rank >= n_test[dataset.labels]
    return result
