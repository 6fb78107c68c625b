"""Settings shared by several methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from classnorm.nn import AttributeNormalizationKind
from classnorm.settings import added_setting, require
from classnorm.training import Precision

if TYPE_CHECKING:
    from classnorm.nn import FeatureGeometry


@dataclass(frozen=True, kw_only=True)
class DescriptorConfig:
    """Normalization of the descriptors."""

    attribute_normalization: AttributeNormalizationKind = "unit"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""


@dataclass(frozen=True, kw_only=True)
class NormalizedConfig(DescriptorConfig):
    """Normalization of features and descriptors."""

    feature_normalization: AttributeNormalizationKind = "standardize"
    """Features: `unit` norm times √d_z, `unit-plain` without the factor, `standardize`, or `none`."""


@dataclass(frozen=True, kw_only=True)
class GeometryConfig:
    """Settings of the feature geometry; the defaults serve all datasets."""

    power: float = 0.5
    """Geometry: power of the features, sign kept."""
    dimensions: int = 512
    """Geometry: number of leading directions to keep."""
    shrinkage: float = 0.3
    """Geometry: shrinkage of the covariance toward a multiple of the identity."""
    whitening: float = 0.35
    """Geometry: divide each direction by its eigenvalue to this power; 0.5 whitens fully, which hurts."""
    within: float = 0.75
    """Geometry: share of the between-class variance excluded from the covariance."""
    hubness: float = 0.1
    """Geometry: weight of the correction for hubs, classes close to many others that attract their images."""

    def check(self) -> None:
        shares = dict.fromkeys(("shrinkage", "whitening", "within", "hubness"), (0, 1))
        require(self, positive=["power"], at_least={"dimensions": 2}, between=shares)

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
class ScaleConfig:
    """Settings for many classes and for devices that compute in 16 bits."""

    sampled_classes: int | Literal["auto"] = added_setting("auto")
    """Seen classes drawn for each step, besides those of the batch; 0 uses all, `auto` all up to 2000 and else 1024."""
    precision: Precision = added_setting("float32")  # noqa: RUF009 (a literal)
    """Products of scores, and of training with `classnorm`; `auto`: bfloat16 or float16 where they are faster."""

    def check(self) -> None:
        if self.sampled_classes != "auto":
            require(self, at_least={"sampled_classes": 0})
