"""What a strategy is, and the hooks by which those that take gradient steps differ."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.continual.config import ContinualConfig, StreamConfig
from classnorm.continual.inputs import Inputs
from classnorm.continual.model import Learner
from classnorm.continual.stream import TaskStream
from classnorm.progress import OnProgress
from classnorm.training import EpochLosses, FitContext, gradient_step, make_optimizer, run_epochs, seeded

__all__ = ["GradientStrategy", "Strategy", "StreamProblem"]


@dataclass(frozen=True, eq=False)
class StreamProblem:
    """A learner and the stream it learns, the classes numbered in the order of learning.

    So the classes of a task, like those seen so far, are a range, and their descriptors a view instead of a copy.
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
    """[n_classes], the label that each has in the stream."""
    rows: tuple[Tensor, ...]
    """Training rows of each task."""
    seed: int

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
        )


class Strategy(ABC):
    """A way to learn the tasks one after another."""

    Config: ClassVar[type[StreamConfig]]
    config: StreamConfig

    def __init__(self, problem: StreamProblem, config: StreamConfig) -> None:
        self.problem = problem
        self.config = config

    @classmethod
    @abstractmethod
    def new_learner(cls, config: Any, d_a: int, d_z: int, seed: int, encoder: nn.Module | None) -> Learner:
        """What it trains, before the first task."""

    @abstractmethod
    def learn(self, task: int, progress: OnProgress | None) -> list[float]:
        """Learn a task (numbered from 0), reporting progress within it; the mean loss of each pass over its rows."""

    def state(self) -> dict[str, Tensor]:
        """What later tasks need besides the learner, for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 (nothing to put back is common)
        """Put back what `state` gave, on the device of the problem."""


class GradientStrategy(Strategy):
    """The common way to learn a task by SGD; a strategy overrides what it does differently.

    For each epoch of a task there are `rows`, and a step for each batch of them: `loss`, its gradient,
    `after_backward`. With the task learnt comes `after_task`, in evaluation mode.
    """

    Config: ClassVar[type[ContinualConfig]] = ContinualConfig
    config: ContinualConfig

    def __init__(self, problem: StreamProblem, config: ContinualConfig) -> None:
        super().__init__(problem, config)
        self.generator = torch.Generator()
        """For every random choice. Seeded anew for each epoch, so that a resumed run makes the same ones."""

    @classmethod
    def new_learner(cls, config: ContinualConfig, d_a: int, d_z: int, seed: int, encoder: nn.Module | None) -> Learner:
        return Learner(config, d_a, d_z, seed, encoder)

    def learn(self, task: int, progress: OnProgress | None) -> list[float]:
        """With an optimizer of its own: momentum from the task before would pull the wrong way."""
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
            for rows in torch.split(self.rows(task, number), config.batch_size):
                loss = self.loss(task, rows)
                gradient_step(optimizer, loss, parameters, config.grad_clip, lambda: self.after_backward(task))
                losses.append(loss.detach())
            return EpochLosses(torch.stack(losses), training.lr)

        learner.train()
        context = FitContext(device, progress)
        where = f" of task {task + 1}"
        history = run_epochs(epoch, config.epochs, learner, optimizer, context, where=where, largest_rise=math.inf)
        learner.eval()
        self.after_task(task)
        return [record["loss"] for record in history]

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """What is trained, by name."""
        return {name: p for name, p in self.problem.learner.named_parameters() if p.requires_grad}

    def rows(self, task: int, epoch: int) -> Tensor:
        """The rows of an epoch, in the order of learning."""
        self.reseed(task, epoch)
        return self.shuffled(self.problem.rows[task])

    def reseed(self, task: int, epoch: int) -> None:
        """Make all that is drawn from here on depend on (seed, task, epoch) alone."""
        seeded(self.problem.seed, task, epoch, generator=self.generator)

    def shuffled(self, rows: Tensor) -> Tensor:
        return rows[torch.randperm(len(rows), generator=self.generator).to(rows.device)]

    def classes(self, task: int) -> range:
        """The classes of the softmax: the current task's."""
        return range(self.problem.bounds[task], self.problem.bounds[task + 1])

    def seen(self, task: int) -> range:
        """The classes of this task and those before it."""
        return range(self.problem.bounds[task + 1])

    def logits(self, task: int, rows: Tensor, classes: range) -> Tensor:
        """[b, len(classes)]. All classes seen so far are embedded, so the standardization is over them."""
        learner, index = self.problem.learner, torch.arange(classes.start, classes.stop, device=rows.device)
        prototypes = learner.prototypes(self.problem.descriptors[: self.problem.bounds[task + 1]], index)
        return learner.logits(self.problem.inputs.batch(rows), prototypes)

    def cross_entropy(self, task: int, rows: Tensor, classes: range) -> Tensor:
        """Mean over the rows, whose classes must be among `classes`."""
        targets = self.problem.labels.index_select(0, rows) - classes.start
        return F.cross_entropy(self.logits(task, rows, classes), targets)

    def loss(self, task: int, rows: Tensor) -> Tensor:
        return self.cross_entropy(task, rows, self.classes(task))

    def after_backward(self, task: int) -> None:
        """Change the gradients of a step, before they are clipped."""

    def after_task(self, task: int) -> None:
        """Keep what later tasks need: the `state`."""
