"""The paper's figures: measurements, plots, and verdicts on the claims."""

from __future__ import annotations

from classnorm_lab.paper.figures.attribute_plots import correlations, histograms, measure_attributes, normality
from classnorm_lab.paper.figures.figure import FigureSpec
from classnorm_lab.paper.figures.formula import measure_formula, variance_formula
from classnorm_lab.paper.figures.scale_curves import measure_seen_scales, seen_scales
from classnorm_lab.paper.figures.smoothness_curves import measure_smoothness, smoothness
from classnorm_lab.paper.figures.variance_curves import measure_variance, variance

__all__ = ["FIGURES", "FigureSpec"]


_SPECS = (
    FigureSpec(
        "variance",
        "Variance of the logits in training, with and without NS, AN and CN",
        "Without NS and AN, the variance of a linear model diverges; NS and AN bring it to 1. In deeper models they no "
        "longer suffice and the variance vanishes; class normalization restores it to 1.",
        measure_variance,
        variance,
    ),
    FigureSpec(
        "variance-formula",
        "The variance formula of normalize+scale",
        "Despite its assumptions, the formula is accurate on synthetic vectors and on real features and attributes.",
        measure_formula,
        variance_formula,
    ),
    FigureSpec(
        "smoothness",
        "Smoothness of the loss surface",
        "Zero-shot embedders have a rougher loss surface than classifiers; class normalization makes it smoother.",
        measure_smoothness,
        smoothness,
    ),
    FigureSpec(
        "seen-scales",
        "Scores against the scale of the seen logits",
        "A scale below 1 trades seen for unseen accuracy; the best scale is 0.95 on SUN, AwA1 and AwA2, and 1 on CUB.",
        measure_seen_scales,
        seen_scales,
        needs_features=True,
    ),
    FigureSpec(
        "normality",
        "Normality test of the attributes",
        "Attributes do not follow a normal distribution.",
        measure_attributes,
        normality,
    ),
    FigureSpec(
        "correlations",
        "Correlations between attributes",
        "Attributes are not independent of each other.",
        measure_attributes,
        correlations,
    ),
    FigureSpec(
        "histograms",
        "Histograms of standardized attributes",
        "Standardized attributes are long-tailed and skewed, far from normal.",
        measure_attributes,
        histograms,
    ),
)
FIGURES: dict[str, FigureSpec] = {spec.name: spec for spec in _SPECS}
