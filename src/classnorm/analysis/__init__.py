"""The paper's diagnostics: logit variance, smoothness of the loss surface, attribute statistics, seen scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.analysis.attributes import AttributeStatistics, attribute_statistics
from classnorm.late import late_names

if TYPE_CHECKING:
    from classnorm.analysis.seen_scales import seen_scale_curves
    from classnorm.analysis.smoothness import SMOOTHNESS_MODELS, gradient_norms
    from classnorm.analysis.variance import (
        formula_on_features,
        formula_on_gaussians,
        initial_variance,
        training_variance,
        variance_models,
    )

__all__ = [
    "SMOOTHNESS_MODELS",
    "AttributeStatistics",
    "attribute_statistics",
    "formula_on_features",
    "formula_on_gaussians",
    "gradient_norms",
    "initial_variance",
    "seen_scale_curves",
    "training_variance",
    "variance_models",
]

__getattr__ = late_names(__name__, ".seen_scales", ".smoothness", ".variance")  # they need PyTorch
