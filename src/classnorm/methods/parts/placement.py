"""Settings of the geometry of features, for the methods that use one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.errors import ConfigError
from classnorm.nn import FeatureGeometry

__all__ = ["GeometryConfig", "placed_rows", "with_hubness"]

_BLOCK = 8192  # rows to place at once: temporaries stay small

_NEAREST = 3  # class means that tell whether a class is a hub


@dataclass(frozen=True, kw_only=True)
class GeometryConfig:
    """One setting for all data."""

    power: float = 0.5
    """Geometry: power of the features, sign kept."""
    dimensions: int = 512
    """Geometry: leading directions of the features that are kept."""
    shrinkage: float = 0.3
    """Geometry: of the covariance, toward a multiple of the identity."""
    whitening: float = 0.35
    """Geometry: directions are divided by their eigenvalue to this power; 0.5 whitens fully, which hurts."""
    within: float = 0.75
    """Geometry: share of the variance between classes that its covariance leaves out."""
    hubness: float = 0.1
    """Geometry: share of a class's mean cosine with the 3 nearest means of seen classes that is taken from its cosines,
    so that a class amid many others does not attract their pictures."""

    def check(self) -> None:
        if not (math.isfinite(self.power) and self.power > 0):
            raise ConfigError(f"power is {self.power}; it must be positive")
        for name in ("shrinkage", "whitening", "within", "hubness"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1")
        if self.dimensions < 2:
            raise ConfigError(f"dimensions is {self.dimensions}; it must be at least 2")

    def build_geometry(self, d_z: int) -> FeatureGeometry:
        """Not fitted yet."""
        return FeatureGeometry(d_z, self.dimensions, self.power, self.shrinkage, self.whitening, self.within)


@torch.no_grad()
def placed_rows(geometry: FeatureGeometry, features: Tensor) -> Tensor:
    """The geometry of all training rows, on its own device."""
    return torch.cat([geometry(block.to(geometry.mean.device)) for block in torch.split(features, _BLOCK)])


def with_hubness(prototypes: Tensor, means: Tensor, hubness: float) -> Tensor:
    """[n_classes, k] → [n_classes, k + 1]: the last number is to be added to the cosines with the class.

    Args:
        means: [n_seen, k], of the seen classes, of unit length.
    """
    near = (F.normalize(prototypes, dim=1) @ means.T).topk(min(_NEAREST, means.shape[0]), dim=1).values
    return torch.cat([prototypes, -hubness * near.mean(dim=1, keepdim=True)], dim=1)
