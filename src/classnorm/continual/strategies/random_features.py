"""Strategies on random features of the inputs, solved from sums over all tasks: RanPAC and ACIL share them.

A fixed random matrix and a ReLU expand the features of a frozen encoder. The Gram matrix of the expanded rows and their
sum by class add up over tasks, so the model after a task equals a fit on all rows so far.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.continual.config import Grid
from classnorm.continual.learner import Learner
from classnorm.continual.strategies.settings import RandomFeatureConfig
from classnorm.continual.strategies.strategy import Strategy, StreamProblem
from classnorm.errors import ConfigError
from classnorm.methods.descriptor_kernel import DescriptorKernel
from classnorm.progress import report
from classnorm.training import seeded

_BLOCK = 1024  # rows expanded at once


class RandomFeatureLearner(Learner):
    """A random layer, a kernel of descriptors and a matrix that strategies solve for. All scores are 0 before that."""

    projection: Tensor
    matrix: Tensor
    scale = 1.0

    def __init__(self, config: RandomFeatureConfig, d_a: int, d_z: int, seed: int) -> None:
        nn.Module.__init__(self)
        self.encoder = nn.Identity()
        self.config, self.d_a, self.d_z = config.kernel(), d_a, d_z
        generator = seeded(seed, d_z)
        self.register_buffer("projection", torch.randn(d_z, config.expansion, generator=generator))
        self.register_buffer("matrix", torch.zeros(1, 1))
        self.kernel = DescriptorKernel(self.config, d_a, 1, 1)

    def expanded(self, inputs: Tensor) -> Tensor:
        """[b, d_z] → [b, expansion]"""
        return F.relu(F.normalize(inputs, dim=1) @ self.projection)

    @property
    def is_solved(self) -> bool:
        return self.matrix.numel() > 1

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        self.matrix = torch.zeros_like(weights["matrix"])
        self.kernel = DescriptorKernel(self.config, self.d_a, *weights["kernel.basis"].shape).to(self.matrix.device)
        super().restore(weights)


class RandomFeatureStrategy(Strategy):
    """Accumulates the Gram matrix of the expanded rows and the sum and count of each class; solves."""

    Config: ClassVar[type[RandomFeatureConfig]] = RandomFeatureConfig
    grid = Grid({"ridge": (0.3, 1.0, 3.0, 10.0, 30.0)}, bias=True)
    learner_class: ClassVar[type[RandomFeatureLearner]]
    config: RandomFeatureConfig

    def __init__(self, problem: StreamProblem, config: RandomFeatureConfig) -> None:
        super().__init__(problem, config)
        assert isinstance(problem.learner, RandomFeatureLearner)
        self.learner = problem.learner
        width = config.expansion
        self.gram = torch.zeros(width, width, dtype=torch.float64)
        self.sums = torch.zeros(len(problem.descriptors), width, dtype=torch.float64)
        self.counts = torch.zeros(len(problem.descriptors), dtype=torch.int64)

    @classmethod
    def new_learner(
        cls, config: RandomFeatureConfig, d_a: int, d_z: int, seed: int, encoder: nn.Module | None
    ) -> Learner:
        if encoder is not None:
            raise ConfigError("this strategy learns from features and trains no encoder; leave out `encoder`")
        return cls.learner_class(config, d_a, d_z, seed)

    @torch.no_grad()
    def learn(self, task: int) -> list[float]:
        for rows in torch.split(self.problem.rows[task], _BLOCK):
            hidden = self.learner.expanded(self.problem.inputs.batch(rows)).cpu()
            labels = self.problem.labels[rows].cpu()
            self.gram += hidden.T @ hidden
            self.sums.index_add_(0, labels, hidden.double())
            self.counts += torch.bincount(labels, minlength=len(self.counts))
        seen = self.problem.learnt(self.counts)
        descriptors = self.problem.descriptors.cpu()[seen]
        device = self.learner.projection.device
        kernel = DescriptorKernel.fit(descriptors, self.learner.config, self.problem.seed)
        matrix = self.solve(kernel, descriptors, seen)
        self.learner.kernel, self.learner.matrix = kernel.to(device), matrix.float().to(device)
        report(1, 1, f"{len(seen)} classes")
        return [0.0]

    @abstractmethod
    def solve(self, kernel: DescriptorKernel, descriptors: Tensor, seen: Tensor) -> Tensor:
        """The matrix of the learner, from the descriptors [n_seen, d_a] and the numbers of the seen classes."""

    def factor(self) -> Tensor:
        """The Cholesky factor of G + λI; the penalty is relative to the mean eigenvalue of G."""
        penalty = self.config.ridge * self.gram.trace() / len(self.gram)
        factor: Tensor = torch.linalg.cholesky(self.gram + penalty * torch.eye(len(self.gram), dtype=torch.float64))
        return factor

    def state(self) -> dict[str, Tensor]:
        return {"gram": self.gram, "sums": self.sums, "counts": self.counts}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for name, value in state.items():
            setattr(self, name, value.cpu())
