"""The mathematics of Class Normalization as small torch modules and functions.

===================================  ======================================  =======================================
in the paper                         here                                    its test in `tests/nn`
===================================  ======================================  =======================================
equation 1: ŷ = γ² cos(z, p)         `cosine_logits`                         `test_logits.py`
equation 2: a ↦ a / ‖a‖              `AttributeNormalization`                `test_normalization.py`
statement 1, equation 4: Var ŷ       `logit_variance`                        `test_logits.py`
equation 5: the γ for a variance     `gamma_for_variance`                    `test_logits.py`
statement 2: Var V = 1 / d_z         `AttributeEmbedder`, `xavier_fan_out`   `test_embedder.py`, `statement_2`
equation 8: Var V = 1 / (d_z E‖h‖²)  `initialize_(V, "data_dependent")`      `test_initialization.py`, `equation_8`
equation 9: S(h) = (h − μ) / σ       `ClassStandardization`                  `test_normalization.py`, `equation_9`
equation 10: Var V = 1 / (d_z d_h)   `proper_variance_`                      `test_initialization.py`, `equation_10`
statement 3: Var ŷ = 1 with S        `AttributeEmbedder`                     `test_embedder.py`, `statement_3`
appendix D: the model V S(H(a))      `AttributeEmbedder`                     `test_embedder.py`
appendix D: the entropy of ŷ         `entropy_regularizer`                   `test_logits.py`
appendix D: dynamic normalization    `DynamicNormalization`                  `test_normalization.py`
appendix H: Var W = 1 / (d_out d_a)  `attribute_correction` of the embedder  `test_embedder.py`
===================================  ======================================  =======================================

`examples/class_normalization_from_scratch.py` has the equations in 50 plain lines. Not from the paper:
`FeatureGeometry` and `with_hubness`, for kernel prototypes, and `sample_classes`, for tens of thousands of classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.nn.kinds import AttributeNormalizationKind, Distribution, HiddenNormalization, Initialization
from classnorm.registry import lazy_names

if TYPE_CHECKING:
    from classnorm.nn.embedder import AttributeEmbedder
    from classnorm.nn.geometry import FeatureGeometry, FeatureMoments, with_hubness
    from classnorm.nn.initialization import initialize_, proper_variance_, weight_variance
    from classnorm.nn.logits import (
        ClassSample,
        cosine_cross_entropy,
        cosine_logits,
        dot_logits,
        entropy_regularizer,
        gamma_for_variance,
        logit_variance,
        sample_classes,
    )
    from classnorm.nn.normalization import AttributeNormalization, ClassStandardization, DynamicNormalization

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
        "logits": "ClassSample cosine_cross_entropy cosine_logits dot_logits entropy_regularizer gamma_for_variance "
        "logit_variance sample_classes",
        "normalization": "AttributeNormalization ClassStandardization DynamicNormalization",
    },
)
