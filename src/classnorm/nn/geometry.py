"""The geometry of features: a power, centring, and partial whitening along the leading directions.

In pooled features of a convolutional network, a few directions of large variance hide the many that discriminate
classes. Full whitening amplifies noise as well; partial whitening works better.
"""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from scipy.linalg.blas import dsyrk
from torch import Tensor, nn

from classnorm.errors import ConfigError
from classnorm.settings import require

__all__ = ["FeatureGeometry", "FeatureMoments"]


class FeatureMoments:
    """Counts and sums per class, and cross-products, of powered features, accumulated over batches in float64.

    Rows without labels count as one class.
    """

    def __init__(self, d_z: int, power: float = 0.5, n_classes: int = 1) -> None:
        self.power = power
        self.counts = torch.zeros(n_classes, dtype=torch.int64)
        self.sums = torch.zeros(n_classes, d_z, dtype=torch.float64)
        self.products = torch.zeros(d_z, d_z, dtype=torch.float64)

    def update(self, features: Tensor, labels: Tensor | None = None) -> Self:
        """Add rows [n, d_z] with labels [n]."""
        labels = torch.zeros(len(features), dtype=torch.int64) if labels is None else labels.cpu()
        parts = max(1, -(-len(features) // 4096))
        for block, index in zip(torch.tensor_split(features, parts), torch.tensor_split(labels, parts), strict=True):
            rows = signed_power(block.cpu().double(), self.power)
            self.counts += torch.bincount(index, minlength=len(self.counts))
            self.sums.index_add_(0, index, rows)
            # BLAS computes one triangle in half the time of a full product; PyTorch does not expose it.
            upper = torch.from_numpy(dsyrk(1.0, rows.numpy().T)).triu()
            self.products += upper + upper.triu(1).T
        return self

    def of_classes(self, classes: Tensor) -> FeatureMoments:
        """The moments of these classes, in this order; the other classes must have no rows."""
        part = FeatureMoments(len(self.products), self.power, 0)
        part.counts, part.sums, part.products = self.counts[classes], self.sums[classes], self.products
        return part

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> Tensor:
        return self.sums.sum(dim=0) / max(1, self.count)

    @property
    def class_means(self) -> Tensor:
        """[n_classes, d_z], zero for a class without rows."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def covariance(self, within: float = 0.0) -> Tensor:
        """The covariance of all rows, minus the share `within` of its between-class part."""
        total = self.products / max(1, self.count) - torch.outer(self.mean, self.mean)
        if not within:
            return total
        weights = self.counts.double() / max(1, self.count)
        offsets = (self.class_means - self.mean) * weights.sqrt()[:, None]
        return total - within * offsets.T @ offsets


def signed_power(features: Tensor, power: float) -> Tensor:
    """sign(x)·|x|^power.

    >>> signed_power(torch.tensor([4.0, -9.0, 0.0]), 0.5)
    tensor([ 2., -3.,  0.])
    """
    if power == 1.0:
        return features
    magnitude = features.abs()
    return features.sign() * (magnitude.sqrt() if power == 0.5 else magnitude**power)


class FeatureGeometry(nn.Module):
    r"""A map of features fitted on training rows: :math:`z \mapsto \mathrm{unit}(W^\top (z^{p} - \mu))`.

    The columns of W are the leading eigenvectors of the covariance shrunk toward a multiple of the identity,
    :math:`(1 - s)\,C + s\,\mathrm{tr}(C)/d\; I`, each times its eigenvalue to the power −`whitening`: 0 only
    rotates, 0.5 whitens fully. C is the covariance of all rows minus the share `within` of its between-class part; with
    1 it is the within-class covariance, as in linear discriminant analysis.

    Args:
        d_z: feature dimension.
        dimensions: output dimension k, at most d_z.
        power: power p of each feature, sign kept.
        shrinkage: s, from 0 to 1.
        whitening: from 0 to 0.5.
        within: from 0 to 1; above 0, fitting requires labels.

    Shapes: [n, d_z] → [n, k], unit length.

    >>> geometry = FeatureGeometry(8, dimensions=4).fit(torch.rand(50, 8, generator=torch.Generator().manual_seed(0)))
    >>> geometry(torch.rand(3, 8)).shape
    torch.Size([3, 4])
    """

    mean: Tensor
    projection: Tensor

    def __init__(
        self,
        d_z: int,
        dimensions: int = 512,
        power: float = 0.5,
        shrinkage: float = 0.3,
        whitening: float = 0.35,
        within: float = 0.0,
    ) -> None:
        super().__init__()
        self.dimensions, self.power = dimensions, power
        self.shrinkage, self.whitening, self.within = shrinkage, whitening, within
        shares = dict.fromkeys(("shrinkage", "whitening", "within"), (0, 1))
        require(self, positive=["dimensions", "power"], between=shares)
        self.register_buffer("mean", torch.zeros(d_z))
        self.register_buffer("projection", torch.zeros(d_z, min(dimensions, d_z)))

    def fit(self, features: Tensor, labels: Tensor | None = None) -> Self:
        """Fit on training rows [n, d_z] with labels [n]."""
        if labels is None and self.within:
            raise ConfigError(f"a geometry with within {self.within} needs the labels of its rows")
        n_classes = 1 if labels is None else int(labels.max()) + 1
        return self.fit_moments(FeatureMoments(len(self.mean), self.power, n_classes).update(features, labels))

    def fit_moments(self, moments: FeatureMoments) -> Self:
        """Fit on moments accumulated over batches; equivalent to `fit` on all rows."""
        if moments.power != self.power:
            raise ConfigError(f"the moments have power {moments.power}, the geometry {self.power}; use the same power")
        covariance = moments.covariance(self.within)
        d_z = len(covariance)
        identity = covariance.trace() / d_z * torch.eye(d_z, dtype=covariance.dtype)
        values, vectors = torch.linalg.eigh((1 - self.shrinkage) * covariance + self.shrinkage * identity)
        k = self.projection.shape[1]
        values, vectors = values.flip(0)[:k], vectors.flip(1)[:, :k]
        floor = max(float(values[0]) * 1e-10, 1e-30)
        self.mean.copy_(moments.mean)
        self.projection.copy_(vectors * values.clamp(min=floor) ** -self.whitening)
        return self

    def forward(self, features: Tensor) -> Tensor:
        return self.place(signed_power(features, self.power))

    def place(self, powered: Tensor) -> Tensor:
        """The map after the power, for features that already have it, like class means of powered rows."""
        return F.normalize((powered - self.mean) @ self.projection, dim=-1)
