"""Normalization of features and descriptors by statistics of the training rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classnorm.methods.method import TrainingRows, ZeroShotModel
from classnorm.nn import AttributeNormalization, AttributeNormalizationKind

__all__ = ["DescriptorConfig", "NormalizedConfig", "NormalizedModel"]


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


class NormalizedModel(ZeroShotModel):
    """A model that normalizes both features and descriptors."""

    def __init__(self, config: NormalizedConfig, d_a: int, d_z: int) -> None:
        super().__init__()
        self.feature_normalization = AttributeNormalization(d_z, config.feature_normalization)
        self.attribute_normalization = AttributeNormalization(d_a, config.attribute_normalization)

    def fit_normalization(self, rows: TrainingRows) -> tuple[Tensor, Tensor]:
        """Fit both normalizations; returns normalized features [n, d_z] and seen descriptors [n_seen, d_a]."""
        self.feature_normalization.fit(rows.features)
        self.attribute_normalization.fit(rows.descriptors)
        return self.feature_normalization(rows.features), self.attribute_normalization(rows.descriptors)
