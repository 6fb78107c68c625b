"""The paper's figures: what is measured for each, how it is drawn, and whether its claims hold."""

from __future__ import annotations

from collections.abc import Callable

from classnorm.reproduce.figures.attribute_plots import correlations, histograms, normality
from classnorm.reproduce.figures.figure import FigureSpec
from classnorm.reproduce.figures.formula import variance_formula
from classnorm.reproduce.figures.scale_curves import seen_scales
from classnorm.reproduce.figures.smoothness_curves import smoothness
from classnorm.reproduce.figures.variance_curves import variance
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact

__all__ = ["FIGURES", "FigureSpec"]


def _spec(name: str, title: str, conclusion: str, make: Callable[[FigureSpec, Reproduction], Artifact]) -> FigureSpec:
    spec = FigureSpec(name, title, conclusion, lambda reproduction: make(spec, reproduction))
    return spec


_SPECS = (
    _spec(
        "variance",
        "Variance of the logits in training, with and without NS, AN and CN",
        "A linear model without NS and AN has a diverging variance; NS and AN push it to 1. With more layers they no "
        "longer do and the variance vanishes; class normalization brings it back to 1.",
        variance,
    ),
    _spec(
        "variance-formula",
        "The variance formula of normalize+scale",
        "Despite its assumptions the formula is accurate on synthetic vectors and on real features and attributes.",
        variance_formula,
    ),
    _spec(
        "smoothness",
        "Smoothness of the loss surface",
        "Zero-shot embedders have a rougher loss surface than classifiers; class normalization makes it smoother.",
        smoothness,
    ),
    _spec(
        "seen-scales",
        "Scores against the scale of the seen logits",
        "A scale below 1 trades seen for unseen accuracy; the best is 0.95 for SUN, AwA1 and AwA2, and 1 for CUB.",
        seen_scales,
    ),
    _spec(
        "normality",
        "Normality test of the attributes",
        "Attributes do not follow a normal distribution.",
        normality,
    ),
    _spec(
        "correlations",
        "Correlations between attributes",
        "Attributes are not independent of each other.",
        correlations,
    ),
    _spec(
        "histograms",
        "Histograms of standardized attributes",
        "Standardized attributes are long-tailed and skewed, far from normal.",
        histograms,
    ),
)
FIGURES: dict[str, FigureSpec] = {spec.name: spec for spec in _SPECS}
