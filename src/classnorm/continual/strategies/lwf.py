"""LwF: on the current task's rows, the scores of earlier classes stay as the learner before the task gave them.

Li, Hoiem: Learning without Forgetting, ECCV 2016.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.continual.config import ContinualConfig
from classnorm.continual.strategies.strategy import GradientStrategy, StreamProblem
from classnorm.nn import cosine_logits

__all__ = ["LwF", "LwFConfig"]


@dataclass(frozen=True, kw_only=True)
class LwFConfig(ContinualConfig):
    """How strongly the earlier learner is followed."""

    temperature: float = 2.0
    """Divides the logits of both learners before they are compared."""
    distillation: float = 1.0
    """Weight of the comparison; the loss of the task has weight 1."""

    def check(self) -> None:
        super().check()
        self.at_least(0.0, "distillation")
        self.at_least(1e-3, "temperature")


class LwF(GradientStrategy):
    """Adds distillation · T² · KL(earlier ‖ current), over the classes of earlier tasks."""

    Config = LwFConfig
    config: LwFConfig

    def __init__(self, problem: StreamProblem, config: LwFConfig) -> None:
        super().__init__(problem, config)
        self.encoder: nn.Module = problem.learner.encoder
        """Of the learner before the task."""
        self.prototypes: Tensor | None = None
        """Of the classes it had seen; None before the first task."""

    def loss(self, task: int, rows: Tensor) -> Tensor:
        if self.prototypes is None:
            return super().loss(task, rows)
        start, temperature = self.classes(task).start, self.config.temperature
        logits = self.logits(task, rows, self.seen(task))  # one pass for both terms
        targets = self.problem.labels.index_select(0, rows) - start
        with torch.no_grad():
            features = self.encoder(self.problem.inputs.batch(rows))
            earlier = cosine_logits(features, self.prototypes, self.config.gamma)
        kept = F.kl_div(
            (logits[:, :start] / temperature).log_softmax(dim=1),
            (earlier / temperature).log_softmax(dim=1),
            reduction="batchmean",
            log_target=True,
        )
        return F.cross_entropy(logits[:, start:], targets) + self.config.distillation * temperature**2 * kept

    @torch.no_grad()
    def after_task(self, task: int) -> None:
        learner = self.problem.learner
        self.encoder = copy.deepcopy(learner.encoder).eval()
        self.prototypes = learner.prototypes(self.problem.descriptors[: self.problem.bounds[task + 1]])

    def state(self) -> dict[str, Tensor]:
        if self.prototypes is None:
            return {}
        encoder = {f"encoder.{name}": value for name, value in self.encoder.state_dict().items()}
        return {"prototypes": self.prototypes, **encoder}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if not state:
            return
        weights = dict(state)
        self.prototypes = weights.pop("prototypes")
        self.encoder = copy.deepcopy(self.problem.learner.encoder).eval()
        self.encoder.load_state_dict({name.removeprefix("encoder."): value for name, value in weights.items()})
