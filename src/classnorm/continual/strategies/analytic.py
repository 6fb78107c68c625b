"""Analytic: kernel prototypes in closed form, from sums over all tasks. It stores no rows and takes no gradient steps.

After every task the model equals the recipe `closed-form` of the method `kernel` fitted on all rows so far with the
same settings. It does not depend on the order of the tasks, so nothing is forgotten; later classes change the geometry
for all classes alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.continual.config import Grid
from classnorm.continual.learner import Learner
from classnorm.continual.strategies.settings import AnalyticConfig
from classnorm.continual.strategies.strategy import Strategy, StreamProblem
from classnorm.errors import ConfigError
from classnorm.methods.descriptor_kernel import DescriptorKernel
from classnorm.methods.kernel import KernelModel, build, solve
from classnorm.nn.geometry import FeatureMoments
from classnorm.progress import report
from classnorm.training.epochs import strip_prefix

_BLOCK = 4096  # rows added at once


class KernelLearner(Learner):
    """A learner that is solved for instead of trained. Before the first task all its scores are 0."""

    def __init__(self, config: AnalyticConfig, d_a: int, d_z: int) -> None:
        nn.Module.__init__(self)
        self.encoder = nn.Identity()
        self.config, self.d_a, self.d_z = config.kernel(), d_a, d_z
        self.scale = self.config.scale
        self.model = KernelModel(self.config, d_z, DescriptorKernel(self.config, d_a, 1, 1), 1)

    def prototypes(self, descriptors: Tensor, classes: Tensor | None = None) -> Tensor:
        prototypes = self.model.prototypes(descriptors)
        return prototypes if classes is None else prototypes[classes]

    def logits(self, inputs: Tensor, prototypes: Tensor) -> Tensor:
        if not prototypes.any():  # before the first task
            return inputs.new_zeros(len(inputs), len(prototypes))
        return self.model.logits(inputs, prototypes)

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        device = self.model.coefficients.device
        self.model = build(self.config, self.d_a, self.d_z, strip_prefix("model.", weights)).to(device)
        super().restore(weights)


class Analytic(Strategy):
    """Accumulates the count, sum and products of the powered features and the sum and count of each class; solves."""

    Config: ClassVar[type[AnalyticConfig]] = AnalyticConfig
    grid = Grid(
        {
            "descriptor_power": (0.6, 1.0),
            "error_share": (0.0, 0.5),
            "ridge": (0.01, 0.03, 0.1, 0.3),
            "length": (1.0, 1.3),
        },
        bias=True,
    )
    config: AnalyticConfig

    def __init__(self, problem: StreamProblem, config: AnalyticConfig) -> None:
        super().__init__(problem, config)
        assert isinstance(problem.learner, KernelLearner)
        self.learner = problem.learner
        self.moments = FeatureMoments(self.learner.d_z, config.power, len(problem.descriptors))

    @classmethod
    def new_learner(cls, config: AnalyticConfig, d_a: int, d_z: int, seed: int, encoder: nn.Module | None) -> Learner:
        if encoder is not None:
            raise ConfigError("strategy analytic learns from features and trains no encoder; leave out `encoder`")
        return KernelLearner(config, d_a, d_z)

    def learn(self, task: int) -> list[float]:
        for rows in torch.split(self.problem.rows[task], _BLOCK):
            self.moments.update(self.problem.inputs.batch(rows), self.problem.labels[rows])
        loss = self._solve()
        report(1, 1, f"loss {loss:.3f}")
        return [loss]

    @torch.no_grad()
    def _solve(self) -> float:
        """Replace the learner's model; return the mean of 1 − cos between prototypes and class means."""
        seen = self.problem.learnt(self.moments.counts)
        descriptors = self.problem.descriptors.cpu()[seen]
        moments = self.moments.of_classes(seen)
        model = solve(self.learner.config, descriptors, moments, self.problem.seed).eval()
        loss = 1.0 - F.cosine_similarity(model.prototypes(descriptors)[:, :-1], model.means).mean()
        self.learner.model = model.to(self.problem.descriptors.device)
        return float(loss)

    def state(self) -> dict[str, Tensor]:
        return {"counts": self.moments.counts, "sums": self.moments.sums, "products": self.moments.products}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for name, value in state.items():
            setattr(self.moments, name, value.cpu())
