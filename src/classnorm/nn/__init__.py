"""The mathematics of Class Normalization as small torch modules and functions."""

from classnorm.nn.embedder import AttributeEmbedder, HiddenNormalization
from classnorm.nn.geometry import FeatureGeometry, FeatureMoments
from classnorm.nn.initialization import (
    Distribution,
    Initialization,
    initialize_,
    proper_variance_,
    weight_variance,
)
from classnorm.nn.logits import (
    cosine_cross_entropy,
    cosine_logits,
    dot_logits,
    entropy_regularizer,
    gamma_for_variance,
    logit_variance,
)
from classnorm.nn.normalization import (
    AttributeNormalization,
    AttributeNormalizationKind,
    ClassStandardization,
    DynamicNormalization,
)

__all__ = [
    "AttributeEmbedder",
    "AttributeNormalization",
    "AttributeNormalizationKind",
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
    "weight_variance",
]
