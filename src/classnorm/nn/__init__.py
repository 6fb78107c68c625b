"""The mathematics of Class Normalization as small torch modules and functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.lazy import lazy_names
from classnorm.nn.kinds import AttributeNormalizationKind, Distribution, HiddenNormalization, Initialization

if TYPE_CHECKING:
    from classnorm.nn.embedder import AttributeEmbedder
    from classnorm.nn.geometry import FeatureGeometry, FeatureMoments, with_hubness
    from classnorm.nn.initialization import initialize_, proper_variance_, weight_variance
    from classnorm.nn.logits import (
        cosine_cross_entropy,
        cosine_logits,
        dot_logits,
        entropy_regularizer,
        gamma_for_variance,
        logit_variance,
    )
    from classnorm.nn.normalization import AttributeNormalization, ClassStandardization, DynamicNormalization
    from classnorm.nn.sampled_softmax import ClassSample, sample_classes

__all__ = [
    "AttributeEmbedder",
    "AttributeNormalization",
    "AttributeNormalizationKind",
    "ClassSample",
    "ClassStandardization",
    "Distribution",
    "DynamicNormalization",
    "FeatureGeometry",
    "FeatureMoments",
    "HiddenNormalization",
    "Initialization",
    "cosine_cross_entropy",
    "cosine_logits",
    "dot_logits",
    "entropy_regularizer",
    "gamma_for_variance",
    "initialize_",
    "logit_variance",
    "proper_variance_",
    "sample_classes",
    "weight_variance",
    "with_hubness",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "embedder": "AttributeEmbedder",
        "geometry": "FeatureGeometry FeatureMoments with_hubness",
        "initialization": "initialize_ proper_variance_ weight_variance",
        "logits": "cosine_cross_entropy cosine_logits dot_logits entropy_regularizer gamma_for_variance logit_variance",
        "normalization": "AttributeNormalization ClassStandardization DynamicNormalization",
        "sampled_softmax": "ClassSample sample_classes",
    },
)
