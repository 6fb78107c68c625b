"""What a strategy is: the hooks by which it changes how a learner goes through the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.continual.config import ContinualConfig
from classnorm.continual.inputs import Inputs
from classnorm.continual.model import Learner
from classnorm.continual.stream import TaskStream

__all__ = ["Problem", "Strategy"]


@dataclass(frozen=True, eq=False)
class Problem:
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
            rows=tuple(torch.from_numpy(stream.train(t)).to(device) for t in range(stream.n_tasks)),
            seed=seed,
        )


class Strategy:
    """The common way to learn a task; a strategy overrides what it does differently.

    For each epoch of a task the runner asks for `rows`, and takes a step for each batch of them: `loss`, its gradient,
    `after_backward`. With the task learnt it calls `after_task`, in evaluation mode.
    """

    Config: ClassVar[type[ContinualConfig]] = ContinualConfig
    config: ContinualConfig

    def __init__(self, problem: Problem, config: ContinualConfig) -> None:
        self.problem = problem
        self.config = config
        self.generator = torch.Generator()
        """For every random choice. Seeded anew for each epoch, so that a resumed run makes the same ones."""

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
        seed = (self.problem.seed * 1_000_003 + task) * 1_000_003 + epoch
        self.generator.manual_seed(seed % 2**63)

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
        """Keep what later tasks need."""

    def state(self) -> dict[str, Tensor]:
        """What `after_task` kept, for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` gave, on the device of the problem."""
