"""The geometry of features: a power, centring, and partial whitening along the leading directions.

In pooled features of a convolutional network, a few directions of large variance hide the many that discriminate
classes. Full whitening amplifies noise as well; partial whitening works better.

Fitting is quick because single precision does the heavy work where it loses nothing: products are of centred rows, and
the matrix decomposed is an inverse, whose eigenvalues are of one size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.errors import ConfigError
from classnorm.settings import POSITIVE, SHARE

_STRIP = 256  # rows of the matrix of products computed at a time
_LARGE = 256  # dimensions from which eigenvectors take noticeable time
_SHRUNK = 0.05  # shrinkage from which the smallest eigenvalues hardly matter
_NEAREST = 3  # class means that determine the hubness of a class
_TINY = 1e-37  # below any feature of interest, above what float32 rounds to 0


class FeatureMoments:
    """Counts and sums per class, and cross-products, of powered features, accumulated over batches in float64.

    Rows without labels count as one class.
    """

    block_rows = 2048
    """Rows added at a time, few enough for the processor's cache."""

    def __init__(self, d_z: int, power: float = 0.5, n_classes: int = 1) -> None:
        self.power = power
        self.counts = torch.zeros(n_classes, dtype=torch.int64)
        self.sums = torch.zeros(n_classes, d_z, dtype=torch.float64)
        self.products = torch.zeros(d_z, d_z, dtype=torch.float64)

    def update(self, features: Tensor, labels: Tensor | None = None) -> Self:
        """Add rows [n, d_z] with labels [n]."""
        labels = torch.zeros(len(features), dtype=torch.int64) if labels is None else labels
        return self.update_blocks(torch.split(features, self.block_rows), labels)

    def update_blocks(self, blocks: Iterable[Tensor], labels: Tensor) -> Self:
        """Add rows [n, d_z] with labels [n], given in blocks of `block_rows` rows."""
        upper = torch.zeros_like(self.products)  # the other triangle has the same products
        for block, index in zip(blocks, torch.split(labels.cpu(), self.block_rows), strict=True):
            if len(block):
                self._add(signed_power(block.cpu().float(), self.power), index, upper)
        self.products += upper.triu_()
        self.products += upper.triu_(1).T
        return self

    def _add(self, rows: Tensor, labels: Tensor, upper: Tensor) -> None:
        """Add powered rows. Sums and products of their offsets from their mean need only float32."""
        center = rows.mean(dim=0)
        offsets, mean = rows - center, center.double()
        classes, index, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        sums = torch.zeros(len(classes), len(mean)).index_add_(0, index, offsets) + torch.outer(counts, mean)
        self.counts.index_add_(0, classes, counts)
        self.sums.index_add_(0, classes, sums)
        for i in range(0, len(mean), _STRIP):
            upper[i : i + _STRIP, i:] += offsets[:, i : i + _STRIP].T @ offsets[:, i:]
        rest = sums.sum(dim=0) - len(rows) / 2 * mean
        self.products.addr_(mean, rest).addr_(rest, mean)

    def add(self, part: FeatureMoments, classes: Tensor) -> None:
        """Add the moments of other rows, whose classes are `classes` here."""
        self.counts.index_add_(0, classes, part.counts)
        self.sums.index_add_(0, classes, part.sums)
        self.products += part.products

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
        count, mean = max(1, self.count), self.mean
        total = (self.products / count).addr_(mean, mean, alpha=-1)
        if within:
            offsets = (self.class_means - mean) * (self.counts.double() / count).sqrt()[:, None]
            total.addmm_(offsets.T, offsets, alpha=-within)
        return total


def signed_power(features: Tensor, power: float) -> Tensor:
    """sign(x)·|x|^power.

    >>> signed_power(torch.tensor([4.0, -9.0, 0.0]), 0.5)
    tensor([ 2., -3.,  0.])
    """
    if power == 1.0:
        return features
    magnitude = features.abs()
    if power == 0.5:
        return features * magnitude.clamp_(min=_TINY).rsqrt_()  # the square root of 0 is slow in PyTorch
    return features.sign() * magnitude.clamp(min=_TINY) ** power  # without the limit, the gradient at 0 is not a number


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
        blocks: sizes of parts of the features, such as those of several encoders. Each part is mapped for itself, to at
            most `dimensions` directions; by default all features are one part.
        weights: of the parts in the cosine of two rows, adding up to 1; by default equal.

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
        blocks: Sequence[int] = (),
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.dimensions, self.power = dimensions, power
        self.shrinkage, self.whitening, self.within = shrinkage, whitening, within
        for name, value in {"dimensions": dimensions, "power": power}.items():
            POSITIVE.require(name, value)
        for name, value in {"shrinkage": shrinkage, "whitening": whitening, "within": within}.items():
            SHARE.require(name, value)
        self.blocks = list(blocks) or [d_z]
        self.widths = [min(dimensions, size) for size in self.blocks]
        self.weights = list(weights) if weights else [1 / len(self.blocks)] * len(self.blocks)
        self.register_buffer("mean", torch.zeros(d_z))
        self.register_buffer("projection", torch.zeros(d_z, sum(self.widths)))

    def fit(self, features: Tensor, labels: Tensor | None = None) -> Self:
        """Fit on training rows [n, d_z] with labels [n]."""
        if labels is None and self.within:
            raise ConfigError(f"a geometry with within {self.within} needs the labels of its rows")
        n_classes = 1 if labels is None else int(labels.max()) + 1
        return self.fit_moments(FeatureMoments(len(self.mean), self.power, n_classes).update(features, labels))

    def fit_moments(self, moments: FeatureMoments, noise: Tensor | None = None) -> Self:
        """Fit on moments accumulated over batches; equivalent to `fit` on all rows.

        Args:
            noise: [d_z, d_z], added to the covariance.
        """
        if moments.power != self.power:
            raise ConfigError(f"the moments have power {moments.power}, the geometry {self.power}; use the same power")
        covariance = moments.covariance(self.within)
        if noise is not None:
            covariance += noise
        self.mean.copy_(moments.mean)
        self.projection.zero_()
        row = column = 0
        for size, width in zip(self.blocks, self.widths, strict=True):
            part = slice(row, row + size)
            self.projection[part, column : column + width] = self._directions(covariance[part, part], width)
            row, column = row + size, column + width
        return self

    def _directions(self, covariance: Tensor, k: int) -> Tensor:
        """[d, k], scaled."""
        average = covariance.trace() / len(covariance)
        values, vectors = leading(covariance, k, exactly=self.shrinkage < _SHRUNK)
        values = (1 - self.shrinkage) * values + self.shrinkage * average
        floor = max(float(values[0]) * 1e-10, 1e-30)
        directions: Tensor = vectors * values.clamp(min=floor) ** -self.whitening
        return directions

    def forward(self, features: Tensor) -> Tensor:
        return self.place(signed_power(features, self.power))

    def place(self, powered: Tensor) -> Tensor:
        """The map after the power, for features that already have it, like class means of powered rows."""
        transformed = (powered - self.mean) @ self.projection
        if len(self.blocks) == 1:
            return F.normalize(transformed, dim=-1)
        parts = zip(torch.split(transformed, self.widths, dim=-1), self.weights, strict=True)
        return torch.cat([math.sqrt(weight) * F.normalize(part, dim=-1) for part, weight in parts], dim=-1)


def leading(covariance: Tensor, k: int, exactly: bool = False) -> tuple[Tensor, Tensor]:
    """The k largest eigenvalues [k] and their vectors [d, k].

    LAPACK's errors are relative to the largest eigenvalue, which in features dwarfs most others. With a as the mean
    eigenvalue, (C/a + I)⁻¹ has the same vectors, and its eigenvalues a / (λ + a) are between 0 and 1. Hence float32, in
    half the time, tells its vectors apart, unless small eigenvalues matter (`exactly`).
    """
    if exactly or len(covariance) < _LARGE:
        values, vectors = torch.linalg.eigh(covariance)
        return values.flip(0)[:k], vectors.flip(1)[:, :k]
    a = (covariance.trace() / len(covariance)).clamp(min=1e-30)
    relative = (covariance / a).float()
    relative.diagonal().add_(1.0)
    values, vectors = torch.linalg.eigh(torch.cholesky_inverse(torch.linalg.cholesky(relative)))
    return a / values[:k].double() - a, vectors[:, :k]


def with_hubness(prototypes: Tensor, means: Tensor, hubness: float) -> Tensor:
    """[n_classes, k] → [n_classes, k + 1]; the last column is added to the cosines with the class.

    Args:
        means: [n_seen, k], unit-length means of the seen classes.
    """
    near = (F.normalize(prototypes, dim=1) @ means.T).topk(min(_NEAREST, means.shape[0]), dim=1).values
    return torch.cat([prototypes, -hubness * near.mean(dim=1, keepdim=True)], dim=1)
