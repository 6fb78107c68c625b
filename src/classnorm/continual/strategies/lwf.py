"""LwF: keeps the scores that the previous learner gives to earlier classes, on the rows of the current task.

Li, Hoiem: Learning without Forgetting, ECCV 2016.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.continual.strategies.settings import LwFConfig
from classnorm.continual.strategies.strategy import GradientStrategy, StreamProblem
from classnorm.nn import cosine_logits
from classnorm.training.epochs import add_prefix, strip_prefix


class LwF(GradientStrategy):
    """Adds distillation · T² · KL(previous ‖ current), over the classes of earlier tasks."""

    Config = LwFConfig
    config: LwFConfig

    def __init__(self, problem: StreamProblem, config: LwFConfig) -> None:
        super().__init__(problem, config)
        self.encoder: nn.Module = problem.learner.encoder
        """Encoder of the previous learner, before the current task."""
        self.prototypes: Tensor | None = None
        """Its prototypes of the classes seen by then; None before the first task."""

    def loss(self, task: int, rows: Tensor) -> Tensor:
        if self.prototypes is None:
            return super().loss(task, rows)
        classes, temperature = self.classes(task), self.config.temperature
        earlier = len(self.prototypes)
        inputs = self.batch(rows)
        logits = self.logits(task, rows, self.seen(task), inputs)  # one pass for both terms
        targets = self.problem.labels.index_select(0, rows) - classes.start
        with torch.no_grad():
            previous = cosine_logits(self.encoder(inputs), self.prototypes, self.config.gamma)
        divergence = F.kl_div(
            (logits[:, :earlier] / temperature).log_softmax(dim=1),
            (previous / temperature).log_softmax(dim=1),
            reduction="batchmean",
            log_target=True,
        )
        loss = F.cross_entropy(logits[:, classes.start :], targets)
        return loss + self.config.distillation * temperature**2 * divergence

    @torch.no_grad()
    def after_task(self, task: int) -> None:
        learner = self.problem.learner
        self.encoder = copy.deepcopy(learner.encoder).eval()
        self.prototypes = learner.prototypes(self.problem.descriptors[: self.problem.bounds[task + 1]])

    def state(self) -> dict[str, Tensor]:
        if self.prototypes is None:
            return {}
        return {"prototypes": self.prototypes, **add_prefix("encoder.", self.encoder.state_dict())}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if state:
            self.prototypes = state["prototypes"]
            self.encoder = copy.deepcopy(self.problem.learner.encoder).eval()
            self.encoder.load_state_dict(strip_prefix("encoder.", state))
