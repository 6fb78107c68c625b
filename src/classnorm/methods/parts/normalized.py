"""Normalization of features and descriptors by statistics of the training rows."""

from __future__ import annotations

from torch import Tensor

from classnorm.methods.model import TrainingRows, ZeroShotModel
from classnorm.methods.settings.parts import NormalizedConfig
from classnorm.nn import AttributeNormalization


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
