r"""The geometry of features: a power, centring, and partial whitening along the leading directions.

Pooled features of a convolutional network have a few loud directions and many quiet ones that tell classes apart.
Full whitening makes all equally loud, noise too; a part of it does better.
"""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.errors import ConfigError

__all__ = ["FeatureGeometry", "FeatureMoments"]


class FeatureMoments:
    """Count, sum and cross-products of powered features, which add up over any number of batches, in float64."""

    def __init__(self, d_z: int, power: float = 0.5) -> None:
        self.power = power
        self.count = 0
        self.sum = torch.zeros(d_z, dtype=torch.float64)
        self.products = torch.zeros(d_z, d_z, dtype=torch.float64)

    def update(self, features: Tensor) -> Self:
        """Add rows [n, d_z]."""
        for block in torch.tensor_split(features, max(1, -(-len(features) // 4096))):
            rows = signed_power(block.cpu().double(), self.power)
            self.count += len(rows)
            self.sum += rows.sum(dim=0)
            self.products.addmm_(rows.T, rows)
        return self

    @property
    def mean(self) -> Tensor:
        return self.sum / max(1, self.count)

    @property
    def covariance(self) -> Tensor:
        return self.products / max(1, self.count) - torch.outer(self.mean, self.mean)


def signed_power(features: Tensor, power: float) -> Tensor:
    """|x|^power with the sign of x.

    >>> signed_power(torch.tensor([4.0, -9.0, 0.0]), 0.5)
    tensor([ 2., -3.,  0.])
    """
    return features if power == 1.0 else features.sign() * features.abs() ** power


class FeatureGeometry(nn.Module):
    r"""Features to better ones, fitted on training rows: :math:`z \mapsto \mathrm{unit}(W^\top (z^{p} - \mu))`.

    The columns of W are the leading eigenvectors of the covariance shrunk toward a multiple of the identity,
    :math:`(1 - s)\,C + s\,\mathrm{tr}(C)/d\; I`, each times its eigenvalue to the power −`whitening`: 0 rotates
    only, 0.5 whitens fully.

    Args:
        d_z: dimension of the features.
        dimensions: of the result; all of them where features have fewer.
        power: of each feature, sign kept; 1 leaves them as they are.
        shrinkage: s.
        whitening: 0 to 0.5.

    Shapes: [n, d_z] → [n, k], unit length.

    >>> geometry = FeatureGeometry(8, dimensions=4).fit(torch.rand(50, 8, generator=torch.Generator().manual_seed(0)))
    >>> geometry(torch.rand(3, 8)).shape
    torch.Size([3, 4])
    """

    mean: Tensor
    projection: Tensor

    def __init__(
        self, d_z: int, dimensions: int = 512, power: float = 0.5, shrinkage: float = 0.3, whitening: float = 0.35
    ) -> None:
        super().__init__()
        if dimensions < 1 or not power > 0 or not 0 <= shrinkage <= 1 or not 0 <= whitening <= 1:
            raise ConfigError(
                f"a geometry cannot have dimensions {dimensions}, power {power}, shrinkage {shrinkage} and whitening "
                f"{whitening}; dimensions and power must be positive, the others lie between 0 and 1"
            )
        self.power, self.shrinkage, self.whitening = power, shrinkage, whitening
        self.register_buffer("mean", torch.zeros(d_z))
        self.register_buffer("projection", torch.zeros(d_z, min(dimensions, d_z)))

    def fit(self, features: Tensor) -> Self:
        """Fit on training rows [n, d_z]."""
        return self.fit_moments(FeatureMoments(len(self.mean), self.power).update(features))

    def fit_moments(self, moments: FeatureMoments) -> Self:
        """Fit on what has been accumulated over batches; the same as on all rows at once."""
        if moments.power != self.power:
            raise ConfigError(f"the moments are of power {moments.power}, the geometry has {self.power}")
        covariance = moments.covariance
        d_z = len(covariance)
        identity = covariance.trace() / d_z * torch.eye(d_z, dtype=covariance.dtype)
        values, vectors = torch.linalg.eigh((1 - self.shrinkage) * covariance + self.shrinkage * identity)
        k = self.projection.shape[1]
        values, vectors = values.flip(0)[:k], vectors.flip(1)[:, :k]
        floor = max(float(values[0]) * 1e-10, 1e-30)
        scaled = vectors * values.clamp(min=floor) ** -self.whitening
        self.mean.copy_(moments.mean)
        self.projection.copy_(scaled)
        return self

    def forward(self, features: Tensor) -> Tensor:
        return self.place(signed_power(features, self.power))

    def place(self, powered: Tensor) -> Tensor:
        """Of features that have their power already, like the mean of powered rows of a class."""
        return F.normalize((powered - self.mean) @ self.projection, dim=-1)
