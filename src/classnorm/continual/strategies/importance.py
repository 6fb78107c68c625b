"""Penalties weighted by the importance of each weight, shared by EWC and MAS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from classnorm.continual.record import add_prefix, strip_prefix
from classnorm.continual.strategies.settings import ImportanceConfig
from classnorm.continual.strategies.strategy import GradientStrategy, StreamProblem

__all__ = ["ImportanceConfig", "ImportanceStrategy", "mean_over_gradients"]


class ImportanceStrategy(GradientStrategy):
    """A quadratic penalty on changes of each weight, by its importance for the tasks so far."""

    config: ImportanceConfig

    def __init__(self, problem: StreamProblem, config: ImportanceConfig) -> None:
        super().__init__(problem, config)
        self.importance: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}

    @abstractmethod
    def task_importance(self, task: int) -> list[Tensor]:
        """Importance of each parameter for the task just learnt."""

    def mean_gradients(
        self, task: int, value: Callable[[Tensor], Tensor], measure: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """`mean_over_gradients` of the trained parameters over the rows of a task."""
        parameters = list(self.parameters.values())
        return mean_over_gradients(parameters, value, measure, self.problem.rows[task], self.config.importance_batch)

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
