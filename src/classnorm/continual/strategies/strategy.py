"""The strategy contract, and the base class of strategies that train by SGD."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from classnorm.continual.config import ContinualConfig, Grid, StreamConfig
from classnorm.continual.learner import AugmentedInputs, Inputs, Learner
from classnorm.continual.stream import TaskStream
from classnorm.errors import ConfigError
from classnorm.training import EpochLosses, FitContext, gradient_step, make_optimizer, run_epochs, seeded


@dataclass(frozen=True, eq=False)
class StreamProblem:
    """A learner and the stream it learns, with classes numbered in the order of learning.

    The classes of a task, and those seen so far, are thus a range, and their descriptors a view instead of a copy.
    """

    learner: Learner
    inputs: Inputs
    labels: Tensor
    """[n_rows of the dataset]"""
    descriptors: Tensor
    """[n_classes, d_a]"""
    bounds: tuple[int, ...]
    """The classes of task t are bounds[t] … bounds[t + 1] − 1."""
    classes: Tensor
    """[n_classes], the label of each class in the stream."""
    rows: tuple[Tensor, ...]
    """Training rows of each task."""
    seed: int
    rows_at_once: int = 0
    """Rows that arrive together and do not come back; 0 is all rows of a task."""

    def learnt(self, counts: Tensor) -> Tensor:
        """The classes with training rows so far, in the order of the stream: that of the tasks has no effect.

        Args:
            counts: [n_classes], training rows of each class so far.
        """
        seen = counts.nonzero()[:, 0]
        if len(seen) < 2:
            raise ConfigError(f"the tasks so far have training rows of {len(seen)} class; make the first task larger")
        return seen[self.classes[seen].argsort()]

    def overlaps(self, task: int) -> bool:
        """Whether rows of classes of earlier tasks arrive in a task."""
        return self.first_classes[task] < self.bounds[task]

    @cached_property
    def first_classes(self) -> tuple[int, ...]:
        """The first class among the rows of each task."""
        return tuple(int(self.labels[rows].min()) for rows in self.rows)

    def bytes_of(self, rows: int) -> int:
        """Bytes of the inputs of some rows, as a learner takes them."""
        return rows * self.inputs.batch(torch.zeros(1, dtype=torch.int64, device=self.descriptors.device)).nbytes

    @classmethod
    def of(cls, stream: TaskStream, learner: Learner, inputs: Inputs, seed: int, device: torch.device) -> Self:
        order = np.concatenate(stream.tasks)
        labels = np.append(np.argsort(order), -1)[stream.labels]  # −1, not in the stream, stays −1
        return cls(
            learner=learner,
            inputs=inputs,
            labels=torch.from_numpy(labels).to(device),
            descriptors=torch.from_numpy(stream.descriptors[order]).to(device),
            bounds=(0, *accumulate(len(task) for task in stream.tasks)),
            classes=torch.from_numpy(order),
            rows=tuple(torch.from_numpy(stream.train(t)).to(device) for t in range(stream.n_tasks)),
            seed=seed,
            rows_at_once=stream.arrivals.rows_at_once,
        )

    def with_descriptors(self, descriptors: NDArray[np.float32]) -> Self:
        """The same problem when these descriptors are known, [n_classes, d_a] in the order of the stream."""
        device = self.descriptors.device
        return replace(self, descriptors=torch.from_numpy(descriptors)[self.classes].to(device))


class Strategy(ABC):
    """Learns the tasks of a stream one after another."""

    Config: ClassVar[type[StreamConfig]]
    grid: ClassVar[Grid | None] = None
    """Settings that validation tasks choose by default; None if they cannot choose any."""
    paper_grid: ClassVar[bool] = False
    """Whether validation tasks can choose from the paper's grid, which varies settings of SGD."""
    config: StreamConfig

    def __init__(self, problem: StreamProblem, config: StreamConfig) -> None:
        self.problem = problem
        self.config = config

    @classmethod
    @abstractmethod
    def new_learner(cls, config: Any, d_a: int, d_z: int, seed: int, encoder: nn.Module | None) -> Learner:
        """The learner before the first task."""

    @abstractmethod
    def learn(self, task: int) -> list[float]:
        """Learn a task (numbered from 0), report progress within it, and return the mean loss of each epoch."""

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint: what later tasks need besides the learner."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 (many strategies have no state)
        """Restore the tensors of `state`, which are on the device of the problem."""

    def stored_bytes(self, tasks: int) -> int:
        """Bytes kept for the sake of the first `tasks` tasks besides the learner: its `state`."""
        return sum(tensor.nbytes for tensor in self.state().values())


class GradientStrategy(Strategy):
    """Trains each task by SGD; subclasses override the hooks in which they differ.

    An epoch iterates over `rows` in batches; a step computes `loss`, its gradient, and calls `after_backward`. After
    the last epoch comes `after_task`, in evaluation mode.
    """

    Config: ClassVar[type[ContinualConfig]] = ContinualConfig
    # The paper's learning rates, and those that models with and without CN need on features.
    grid: ClassVar[Grid] = Grid({"lr": (1e-4, 1e-3, 1e-2, 0.1, 1.0)}, refined=("lr",))
    paper_grid = True
    config: ContinualConfig

    def __init__(self, problem: StreamProblem, config: ContinualConfig) -> None:
        super().__init__(problem, config)
        self.generator = torch.Generator()
        """Source of all random choices. Reseeded for each epoch, so that a resumed run makes the same ones."""

    @classmethod
    def new_learner(cls, config: ContinualConfig, d_a: int, d_z: int, seed: int, encoder: nn.Module | None) -> Learner:
        return Learner(config, d_a, d_z, seed, encoder)

    def learn(self, task: int) -> list[float]:
        """Train with a new optimizer: momentum from the previous task would pull the wrong way."""
        config, learner = self.config, self.problem.learner
        parameters = list(self.parameters.values())
        training = config.training(task)
        groups: list[dict[str, Any]] = [{"params": list(learner.embedder.parameters())}]
        trained = [p for p in learner.encoder.parameters() if p.requires_grad]
        if trained:
            rate = config.encoder_lr * config.lr_decay**task
            groups.append({"params": trained, "lr": rate, "momentum": config.encoder_momentum})
        device = parameters[0].device
        optimizer = make_optimizer(groups, training, device)

        def epoch(number: int) -> EpochLosses:
            losses = []
            for rows in self.batches(task, number):
                loss = self.loss(task, rows)
                gradient_step(optimizer, loss, parameters, config.grad_clip, lambda: self.after_backward(task))
                losses.append(loss.detach())
            return EpochLosses(torch.stack(losses), training.lr)

        learner.train()
        context = FitContext(device)
        where = f" of task {task + 1}"
        epochs = 1 if self.problem.rows_at_once else config.epochs
        history = run_epochs(epoch, epochs, learner, optimizer, context, where=where, largest_rise=math.inf)
        learner.eval()
        self.after_task(task)
        return [record["loss"] for record in history]

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Trained parameters by name."""
        return {name: p for name, p in self.problem.learner.named_parameters() if p.requires_grad}

    def rows(self, task: int, epoch: int) -> Tensor:
        """Rows of an epoch, in the order of training."""
        self.reseed(task, epoch)
        return self.shuffled(self.problem.rows[task])

    def batches(self, task: int, epoch: int) -> Iterator[Tensor]:
        """Rows of each step of an epoch. Rows that arrive apart get all their steps before the next ones arrive."""
        rows, at_once = self.rows(task, epoch), self.problem.rows_at_once
        for arrived in torch.split(rows, at_once or len(rows)):
            for _ in range(self.config.epochs if at_once else 1):
                yield from torch.split(arrived, self.config.batch_size)

    def reseed(self, task: int, epoch: int) -> None:
        """Make all later draws depend on (seed, task, epoch) alone."""
        seeded(self.problem.seed, task, epoch, generator=self.generator)

    def shuffled(self, rows: Tensor) -> Tensor:
        return rows[torch.randperm(len(rows), generator=self.generator).to(rows.device)]

    def classes(self, task: int) -> range:
        """Classes of the softmax: those of the current task, or all so far if rows of earlier classes arrive in it."""
        start, stop = self.problem.bounds[task : task + 2]
        return range(0 if self.problem.overlaps(task) else start, stop)

    def seen(self, task: int) -> range:
        """Classes of the tasks up to this one."""
        return range(self.problem.bounds[task + 1])

    def batch(self, rows: Tensor) -> Tensor:
        """Inputs of some rows: in training, those of an encoder may be augmented."""
        inputs = self.problem.inputs
        if self.config.augment and self.problem.learner.training and isinstance(inputs, AugmentedInputs):
            return inputs.augmented(rows, self.generator)
        return inputs.batch(rows)

    def logits(self, task: int, rows: Tensor, classes: range, inputs: Tensor | None = None) -> Tensor:
        """[b, len(classes)], for the `batch` of some rows unless their inputs are given. All classes seen so far are
        embedded, so the standardization is over them."""
        learner, index = self.problem.learner, torch.arange(classes.start, classes.stop, device=rows.device)
        prototypes = learner.prototypes(self.problem.descriptors[: self.problem.bounds[task + 1]], index)
        return learner.logits(self.batch(rows) if inputs is None else inputs, prototypes)

    def cross_entropy(self, task: int, rows: Tensor, classes: range) -> Tensor:
        """Mean over the rows, whose classes must be among `classes`."""
        targets = self.problem.labels.index_select(0, rows) - classes.start
        return F.cross_entropy(self.logits(task, rows, classes), targets)

    def loss(self, task: int, rows: Tensor) -> Tensor:
        return self.cross_entropy(task, rows, self.classes(task))

    def after_backward(self, task: int) -> None:
        """Change the gradients of a step before they are clipped."""

    def after_task(self, task: int) -> None:
        """Update what later tasks need: the `state`."""
