"""RanPAC (McDonnell et al., 2023), adapted to descriptors.

RanPAC scores a class by its mean in a random expansion of the features, decorrelated by the Gram matrix of all rows:
hᵀ (G + λI)⁻¹ c. A class without rows has no mean, so kernel ridge regression from descriptors to means supplies one,
for all classes alike.
"""

from __future__ import annotations

from torch import Tensor

from classnorm.continual.strategies.random_features import RandomFeatureLearner, RandomFeatureStrategy
from classnorm.methods.kernel import DescriptorKernel, ridge

__all__ = ["RanPAC"]

_MEANS_RIDGE = 0.1  # as in the method kernel


class _Learner(RandomFeatureLearner):
    def prototypes(self, descriptors: Tensor, classes: Tensor | None = None) -> Tensor:
        if not self.is_solved:
            return descriptors.new_zeros(len(descriptors), self.projection.shape[1])
        prototypes: Tensor = self.kernel(descriptors) @ self.matrix
        return prototypes if classes is None else prototypes[classes]

    def logits(self, inputs: Tensor, prototypes: Tensor) -> Tensor:
        return self.expanded(inputs) @ prototypes.T


class RanPAC(RandomFeatureStrategy):
    """Decorrelated class means, predicted from descriptors."""

    learner_class = _Learner

    def solve(self, kernel: DescriptorKernel, descriptors: Tensor, seen: Tensor) -> Tensor:
        sums, counts = self.sums[seen], self.counts[seen]
        means = (sums / counts[:, None]).float()
        coefficients = ridge(kernel(descriptors), means, _MEANS_RIDGE).double()  # [rank, expansion]
        share = counts.double().mean()  # rows of a class, so that scores are those of a regression to 0 and 1
        return share * self.ridge_solution(coefficients.T).T
