"""ACIL (Zhuang et al., 2022), adapted to descriptors.

ACIL regresses one-hot labels on a random expansion of the features, recursively over tasks, with the result of a joint
regression. Here the labels are the descriptors of the classes, and a row belongs to the class whose descriptor is
closest to what is predicted, so classes without rows compete too.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.continual.strategies.random_features import RandomFeatureLearner, RandomFeatureStrategy
from classnorm.methods.descriptor_kernel import DescriptorKernel


class _Learner(RandomFeatureLearner):
    def prototypes(self, descriptors: Tensor, classes: Tensor | None = None) -> Tensor:
        prototypes = self.kernel.transformed(descriptors)
        return prototypes if classes is None else prototypes[classes]

    def logits(self, inputs: Tensor, prototypes: Tensor) -> Tensor:
        if not self.is_solved:
            return inputs.new_zeros(len(inputs), len(prototypes))
        return F.normalize(self.expanded(inputs) @ self.matrix, dim=1) @ F.normalize(prototypes, dim=1).T


class ACIL(RandomFeatureStrategy):
    """Ridge regression from the expanded rows to the descriptors of their classes."""

    learner_class = _Learner

    def solve(self, kernel: DescriptorKernel, descriptors: Tensor, seen: Tensor) -> Tensor:
        return torch.cholesky_solve(self.sums[seen].T @ kernel.transformed(descriptors).double(), self.factor())
