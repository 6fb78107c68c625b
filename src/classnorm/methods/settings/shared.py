"""Settings shared by several methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from classnorm.nn import AttributeNormalizationKind
from classnorm.settings import Config, Positive, Share, added_setting, at_least, at_most
from classnorm.training import Precision

if TYPE_CHECKING:
    from classnorm.nn import FeatureGeometry


@dataclass(frozen=True, kw_only=True)
class DescriptorConfig(Config):
    """Normalization of the descriptors."""

    attribute_normalization: AttributeNormalizationKind = "unit"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""


@dataclass(frozen=True, kw_only=True)
class NormalizedConfig(DescriptorConfig):
    """Normalization of features and descriptors."""

    feature_normalization: AttributeNormalizationKind = "standardize"
    """Features: `unit` norm times √d_z, `unit-plain` without the factor, `standardize`, or `none`."""


@dataclass(frozen=True, kw_only=True)
class GeometryConfig(Config):
    """Settings of the feature geometry; the defaults serve all datasets."""

    power: Positive = 0.5
    """Geometry: power of the features, sign kept."""
    dimensions: Annotated[int, at_least(2), at_most(1 << 15)] = 512
    """Geometry: number of leading directions to keep."""
    shrinkage: Share = 0.3
    """Geometry: shrinkage of the covariance toward a multiple of the identity."""
    whitening: Share = 0.35
    """Geometry: divide each direction by its eigenvalue to this power; 0.5 whitens fully, which hurts."""
    within: Share = 0.75
    """Geometry: share of the between-class variance excluded from the covariance."""
    hubness: Share = 0.1
    """Geometry: weight of the correction for hubs, classes close to many others that attract their images."""

    def feature_parts(self, d_z: int) -> Sequence[int]:
        """Sizes of the feature parts with separate geometries."""
        return [d_z]

    def part_weights(self, n_parts: int) -> Sequence[float] | None:
        """Weights of the feature parts, adding up to 1; None if they are equal."""
        return None

    def build_geometry(self, d_z: int) -> FeatureGeometry:
        """An unfitted geometry with these settings."""
        from classnorm.nn import FeatureGeometry

        shape = self.dimensions, self.power, self.shrinkage, self.whitening, self.within
        parts = self.feature_parts(d_z)
        return FeatureGeometry(d_z, *shape, parts, self.part_weights(len(parts)))


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(Config):
    """Settings for many classes and for devices that compute in 16 bits."""

    sampled_classes: Annotated[int | Literal["auto"], at_least(0)] = added_setting("auto")
    """Seen classes drawn for each step, besides those of the batch; 0 uses all, `auto` all up to 2000 and else 1024."""
    precision: Precision = added_setting("float32")
    """Products of scores, and of training with `classnorm`; `auto`: bfloat16 or float16 where they are faster."""
