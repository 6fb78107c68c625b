"""The Gaussian kernel of descriptors, the weights of its blocks, and ridge regression in its feature space.

Blocks describe the same classes: attributes and text, say. Their weights are those with which ridge regression best
predicts the mean of a class from all other classes, in closed form: with A = Σ w K + λI, the errors of leaving out one
class at a time are A⁻¹M / diag(A⁻¹). The classes that a fit does not see, and all its scores, have no part in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.methods.settings.kernel import KernelConfig
from classnorm.nn import FeatureMoments
from classnorm.nn.geometry import signed_power

_CHOOSING = 500  # classes that choose the weights of blocks; more would cost time and decide little
_SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 1.0)
_SWEEPS = 2


class DescriptorKernel(nn.Module):
    """Descriptors → features of a Gaussian kernel, the weighted mean of one kernel per block."""

    center: Tensor
    spread: Tensor
    landmarks: Tensor
    bandwidths: Tensor
    weights: Tensor | None
    basis: Tensor

    def __init__(self, config: KernelConfig, d_a: int, n_landmarks: int, rank: int, *, weighted: bool = False) -> None:
        super().__init__()
        self.sizes = config.block_sizes(d_a)
        self.power = config.descriptor_power
        self.register_buffer("center", torch.zeros(d_a))
        self.register_buffer("spread", torch.ones(d_a))
        self.register_buffer("landmarks", torch.zeros(n_landmarks, d_a))
        self.register_buffer("bandwidths", torch.ones(len(self.sizes)))
        weights = torch.ones(len(self.sizes)) / len(self.sizes) if weighted else None
        self.register_buffer("weights", weights)  # [n_blocks], adding up to 1; None if all blocks count alike
        self.register_buffer("basis", torch.zeros(n_landmarks, rank))

    @classmethod
    def fit(
        cls, descriptors: Tensor, config: KernelConfig, seed: int, weights: Sequence[float] | None = None
    ) -> DescriptorKernel:
        """A kernel fitted on the descriptors [n_seen, d_a] of the seen classes, with weights of its blocks."""
        d_a = descriptors.shape[1]
        classes = landmark_classes(len(descriptors), config.landmarks, seed)
        kernel = cls(config, d_a, len(classes), len(classes), weighted=weights is not None)
        if weights is not None:
            kernel.weights = torch.tensor(weights)
        powered = signed_power(descriptors, kernel.power)
        kernel.center.copy_(powered.mean(dim=0))
        deviation = powered.std(dim=0)
        kernel.spread.copy_(torch.where(deviation > 1e-8, deviation, torch.ones_like(deviation)) ** config.spread)
        kernel.landmarks.copy_(kernel.transformed(descriptors[classes]))
        for i, part in enumerate(torch.split(kernel.landmarks, kernel.sizes, dim=1)):
            median = float(torch.pdist(part.double()).square().median())
            kernel.bandwidths[i] = config.bandwidth * (median if median > 1e-8 else 1.0)
        values, vectors = torch.linalg.eigh(kernel._gram(kernel.landmarks.double()))
        stable = values > 1e-7 * values[-1]
        kernel.basis = (vectors[:, stable] * values[stable].rsqrt()).to(kernel.center.dtype)
        return kernel

    def transformed(self, descriptors: Tensor) -> Tensor:
        """Raised to a power, centred, divided by a power of the deviation, each block of unit length."""
        offsets = (signed_power(descriptors, self.power) - self.center) / self.spread
        parts = torch.split(offsets, self.sizes, dim=1)
        return torch.cat([F.normalize(part, dim=1) for part in parts], dim=1)

    def grams(self, transformed: Tensor) -> Iterator[Tensor]:
        """[n, n_landmarks] of each block."""
        blocks = (
            torch.split(table, self.sizes, dim=1) for table in (transformed, self.landmarks.to(transformed.dtype))
        )
        for rows, marks, bandwidth in zip(*blocks, self.bandwidths, strict=True):
            squared = (2.0 - 2.0 * rows @ marks.T).clamp(min=0.0)  # both sides have unit length
            yield torch.exp(-squared / bandwidth.to(transformed.dtype))

    def _gram(self, transformed: Tensor) -> Tensor:
        """[n, n_landmarks], the weighted mean over the blocks."""
        total = torch.zeros(len(transformed), len(self.landmarks), dtype=transformed.dtype, device=transformed.device)
        if self.weights is None:
            for gram in self.grams(transformed):
                total += gram
            return total / len(self.sizes)
        for gram, weight in zip(self.grams(transformed), self.weights.to(transformed.dtype), strict=True):
            total += weight * gram
        return total

    def forward(self, descriptors: Tensor) -> Tensor:
        """[n, d_a] → [n, rank]."""
        return self._gram(self.transformed(descriptors)) @ self.basis


def landmark_classes(n: int, most: int, seed: int) -> Tensor:
    """All of n classes, or a sample by the seed if there are too many, ascending."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values


def block_weights(config: KernelConfig, descriptors: Tensor, moments: FeatureMoments, seed: int) -> list[float] | None:
    """The weights of the blocks of the descriptors; None if there is one, or if all count alike.

    They are chosen in the feature space of the model, before the errors that they lead to are known.
    """
    sizes = config.block_sizes(descriptors.shape[1])
    if fixed := config.fixed_weights(len(sizes)):
        return fixed
    if len(sizes) == 1 or config.block_weights == "equal":
        return None
    kernel = DescriptorKernel.fit(descriptors, config.replace(landmarks=_CHOOSING), seed)
    geometry = config.build_geometry(moments.sums.shape[1]).fit_moments(moments)
    means = geometry.place(moments.class_means.to(kernel.center.dtype)).double()
    classes = landmark_classes(len(means), _CHOOSING, seed)
    return choose_weights(list(kernel.grams(kernel.landmarks.double())), means[classes], config.ridge)


def left_out_error(gram: Tensor, targets: Tensor, penalty: float) -> float:
    """The mean squared error of kernel ridge regression for rows left out, one at a time.

    Args:
        gram: [n, n]
        targets: [n, k]
    """
    inverse = torch.linalg.inv(gram + penalty * torch.eye(len(gram), dtype=gram.dtype))
    errors = inverse @ targets / inverse.diagonal()[:, None]
    return float(errors.square().sum(dim=1).mean())


def choose_weights(grams: Sequence[Tensor], targets: Tensor, penalty: float) -> list[float]:
    """The weights of the kernels, which add up to 1, with the smallest error. A kernel that does not help has none.

    One kernel at a time gets every share of a grid; the others keep their proportions.

    Args:
        grams: [n, n] of each kernel.
        targets: [n, k]
    """
    best = torch.full((len(grams),), 1.0 / len(grams), dtype=torch.float64)
    table, error = torch.stack(list(grams)), float("inf")
    for _ in range(_SWEEPS):
        for block in range(len(grams)):
            others = best.clone()
            others[block] = 0.0
            rest = others.sum()
            for share in _SHARES if rest > 0 else ():
                weights = (1.0 - share) / rest * others
                weights[block] = share
                if (found := left_out_error(torch.tensordot(weights, table, 1), targets, penalty)) < error:
                    best, error = weights, found
    return best.tolist()


def left_out_errors(features: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """What the ridge regression on all other rows misses of each target, [n, k] in float64: (M − H M) / (1 − diag H)
    with H = Φ (ΦᵀΦ + λI)⁻¹ Φᵀ."""
    phi, means = features.double(), targets.double()
    gram = phi.T @ phi + penalty * torch.eye(phi.shape[1], dtype=torch.float64)
    inverse = torch.linalg.solve(gram, phi.T)
    own = (phi * inverse.T).sum(dim=1, keepdim=True)
    errors: Tensor = (means - phi @ (inverse @ means)) / (1.0 - own).clamp(min=1e-6)
    return errors


def ridge(features: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """(ΦᵀΦ + λI)⁻¹ Φᵀ M, in float64."""
    phi, means = features.double(), targets.double()
    gram = phi.T @ phi + penalty * torch.eye(phi.shape[1], dtype=torch.float64)
    solution: Tensor = torch.linalg.solve(gram, phi.T @ means)
    return solution.to(features.dtype)
