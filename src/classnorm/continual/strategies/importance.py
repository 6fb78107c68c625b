"""Weights by importance: what EWC and MAS share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from classnorm.continual.config import ContinualConfig
from classnorm.continual.strategies.strategy import GradientStrategy, StreamProblem

__all__ = ["ImportanceConfig", "ImportanceStrategy", "mean_over_gradients"]


@dataclass(frozen=True, kw_only=True)
class ImportanceConfig(ContinualConfig):
    """How much the weights of earlier tasks are held fast."""

    penalty: float
    """Weight of the penalty Σ importance · (weight − weight after the last task)²."""
    decay: float
    """Factor of the importances so far when those of a new task are added."""
    importance_batch: int = 8
    """Rows whose mean gradient is taken at once for the importances; 1 is exact and slow."""

    def check(self) -> None:
        super().check()
        self.at_least(0.0, "penalty", "decay")
        self.at_least(1, "importance_batch")


class ImportanceStrategy(GradientStrategy):
    """A quadratic penalty that holds each weight at its last value, by its importance for the tasks so far."""

    config: ImportanceConfig

    def __init__(self, problem: StreamProblem, config: ImportanceConfig) -> None:
        super().__init__(problem, config)
        self.importance: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}

    @abstractmethod
    def task_importance(self, task: int) -> list[Tensor]:
        """Of each parameter, for the task just learnt."""

    def after_backward(self, task: int) -> None:
        """The penalty enters as its gradient: its value is of no use, and costs as much again."""
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
        return {f"importance.{name}": value for name, value in self.importance.items()} | {
            f"anchor.{name}": value for name, value in self.anchor.items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for part, kept in (("importance.", self.importance), ("anchor.", self.anchor)):
            kept |= {name.removeprefix(part): value for name, value in state.items() if name.startswith(part)}


def mean_over_gradients(
    parameters: Sequence[nn.Parameter],
    value: Callable[[Tensor], Tensor],
    measure: Callable[[Tensor], Tensor],
    rows: Tensor,
    batch_size: int,
) -> list[Tensor]:
    """Mean over the rows of `measure` of the gradient of `value`, batch by batch.

    Args:
        value: rows [b] → scalar, itself a mean over the rows.
        measure: what a gradient becomes before the mean, elementwise.
    """
    totals = [torch.zeros_like(parameter) for parameter in parameters]
    for batch in torch.split(rows, batch_size):
        gradients = torch.autograd.grad(value(batch), parameters, materialize_grads=True)
        for total, gradient in zip(totals, gradients, strict=True):
            total.add_(measure(gradient), alpha=len(batch) / len(rows))
    return totals
