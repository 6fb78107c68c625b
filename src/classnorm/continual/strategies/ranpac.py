"""RanPAC (McDonnell et al., 2023), adapted to descriptors.

RanPAC scores a class by its mean in a random expansion of the features, decorrelated by the Gram matrix of all rows:
hᵀ (G + λI)⁻¹ c. A class without rows has no mean, so kernel ridge regression from descriptors to means supplies one,
for all classes alike. The scores shrink as classes are added, so that no bias of seen classes would suit all tasks; the
cosine of h and c in the same metric does not.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.continual.strategies.random_features import RandomFeatureLearner, RandomFeatureStrategy
from classnorm.continual.strategies.settings import RandomFeatureConfig
from classnorm.methods.descriptor_kernel import DescriptorKernel, ridge

_MEANS_RIDGE = 0.1  # as in the method kernel


class _Learner(RandomFeatureLearner):
    metric: Tensor

    def __init__(self, config: RandomFeatureConfig, d_a: int, d_z: int, seed: int) -> None:
        super().__init__(config, d_a, d_z, seed)
        self.register_buffer("metric", torch.zeros(1, 1))  # [expansion, expansion], a root of (G + λI)⁻¹

    def prototypes(self, descriptors: Tensor, classes: Tensor | None = None) -> Tensor:
        if not self.is_solved:
            return descriptors.new_zeros(len(descriptors), self.projection.shape[1])
        prototypes = F.normalize(self.kernel(descriptors) @ self.matrix, dim=1)
        return prototypes if classes is None else prototypes[classes]

    def logits(self, inputs: Tensor, prototypes: Tensor) -> Tensor:
        if not self.is_solved:
            return inputs.new_zeros(len(inputs), len(prototypes))
        return F.normalize(self.expanded(inputs) @ self.metric, dim=1) @ prototypes.T

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        self.metric = torch.zeros_like(weights["metric"])
        super().restore(weights)


class RanPAC(RandomFeatureStrategy):
    """Decorrelated class means, predicted from descriptors."""

    learner_class = _Learner

    def solve(self, kernel: DescriptorKernel, descriptors: Tensor, seen: Tensor) -> Tensor:
        means = (self.sums[seen] / self.counts[seen][:, None]).float()
        coefficients = ridge(kernel(descriptors), means, _MEANS_RIDGE).double()  # [rank, expansion]
        root: Tensor = torch.linalg.solve_triangular(
            self.factor(), torch.eye(len(self.gram), dtype=torch.float64), upper=False
        ).T
        assert isinstance(self.learner, _Learner)
        self.learner.metric = root.float().to(self.learner.projection.device)
        return coefficients @ root
