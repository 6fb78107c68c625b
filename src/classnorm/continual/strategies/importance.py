"""Penalties weighted by the importance of each weight, shared by EWC and MAS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from classnorm.continual.strategies.settings import ImportanceConfig
from classnorm.continual.strategies.strategy import GradientStrategy, StreamProblem
from classnorm.training.epochs import add_prefix, strip_prefix

_GRADIENTS = 1 << 25  # numbers in the gradients of the rows that are computed at once


class ImportanceStrategy(GradientStrategy):
    """A quadratic penalty on changes of each weight, by its importance for the tasks so far."""

    config: ImportanceConfig

    def __init__(self, problem: StreamProblem, config: ImportanceConfig) -> None:
        super().__init__(problem, config)
        self.importance: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}

    @staticmethod
    @abstractmethod
    def value(logits: Tensor, targets: Tensor) -> Tensor:
        """What the gradient is of, a mean over rows: [b, k], [b] → scalar."""

    @staticmethod
    @abstractmethod
    def measure(gradient: Tensor) -> Tensor:
        """What of the gradient is averaged, elementwise."""

    def task_importance(self, task: int) -> list[Tensor]:
        """Importance of each parameter for the task just learnt: the mean of `measure` of the gradients."""
        problem, classes, rows = self.problem, self.classes(task), self.problem.rows[task]
        if self.config.importance == "averaged":

            def value(batch: Tensor) -> Tensor:
                return self.value(self.logits(task, batch, classes), problem.labels[batch] - classes.start)

            parameters = list(self.parameters.values())
            return mean_over_gradients(parameters, value, self.measure, rows, self.config.importance_batch)
        known = (problem.descriptors[: problem.bounds[task + 1]], torch.tensor([*classes], device=rows.device))

        def row_value(weights: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
            return self.value(functional_call(problem.learner, weights, (row[None], *known)), target[None])

        def batch(rows: Tensor) -> tuple[Tensor, Tensor]:
            return problem.inputs.batch(rows), problem.labels[rows] - classes.start

        return mean_over_rows(self.parameters, row_value, self.measure, rows, batch)

    def after_backward(self, task: int) -> None:
        """Add the gradient of the penalty; its value is not needed and would cost as much again."""
        if not self.importance:
            return
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                change = parameter.detach() - self.anchor[name]
                parameter.grad.addcmul_(self.importance[name], change, value=2.0 * self.config.penalty)

    def after_task(self, task: int) -> None:
        newest = dict(zip(self.parameters, self.task_importance(task), strict=True))
        if self.importance:
            newest = {name: self.config.decay * self.importance[name] + value for name, value in newest.items()}
        self.importance = newest
        self.anchor = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def state(self) -> dict[str, Tensor]:
        return add_prefix("importance.", self.importance) | add_prefix("anchor.", self.anchor)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.importance = strip_prefix("importance.", state)
        self.anchor = strip_prefix("anchor.", state)


def mean_over_gradients(
    parameters: Sequence[nn.Parameter],
    value: Callable[[Tensor], Tensor],
    measure: Callable[[Tensor], Tensor],
    rows: Tensor,
    batch_size: int,
) -> list[Tensor]:
    """Mean over batches of `measure` of the gradient of `value`, weighted by the size of the batch.

    Args:
        value: rows [b] → scalar, itself a mean over the rows.
        measure: elementwise function of a gradient.
    """
    totals = [torch.zeros_like(parameter) for parameter in parameters]
    for batch in torch.split(rows, batch_size):
        gradients = torch.autograd.grad(value(batch), parameters, materialize_grads=True)
        for total, gradient in zip(totals, gradients, strict=True):
            total.add_(measure(gradient), alpha=len(batch) / len(rows))
    return totals


def mean_over_rows(
    parameters: Mapping[str, nn.Parameter],
    row_value: Callable[..., Tensor],
    measure: Callable[[Tensor], Tensor],
    rows: Tensor,
    batch: Callable[[Tensor], tuple[Any, ...]],
) -> list[Tensor]:
    """Mean over rows of `measure` of the gradient of each row.

    Args:
        row_value: (weights by name, inputs of one row) → scalar.
        batch: rows [b] → the inputs of `row_value`, each with a first dimension of b.
    """
    weights = {name: parameter.detach() for name, parameter in parameters.items()}
    row_gradients = vmap(grad(row_value), in_dims=(None, *[0] * len(batch(rows[:1]))))
    totals = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    at_once = max(1, _GRADIENTS // sum(weight.numel() for weight in weights.values()))
    for part in torch.split(rows, at_once):
        for name, gradients in row_gradients(weights, *batch(part)).items():
            totals[name] += measure(gradients).sum(dim=0) / len(rows)
    return list(totals.values())
