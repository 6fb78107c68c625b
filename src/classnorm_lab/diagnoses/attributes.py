"""Are class attributes zero-mean, normal and independent? (appendix H: they are not)

Statistics, their tables and plots, and advice in plain words.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError
from classnorm.results.artifact import Artifact, Plot, Series, Table
from classnorm_lab.diagnoses.diagnosis import rounded

_FEWEST = 8  # classes that D'Agostino and Pearson's test needs
FloatArray = npt.NDArray[np.float64]
HISTOGRAM_EDGES = np.linspace(-3, 6, 46)


@dataclass(frozen=True)
class AttributeStatistics:
    """Statistics of a descriptor table, without its constant attributes."""

    chi2: FloatArray
    """Per attribute, D'Agostino and Pearson's statistic; for normal data mostly between 0 and 5."""
    p_value: FloatArray
    correlation: FloatArray
    """Per attribute, the mean absolute correlation with the others."""
    density: FloatArray
    """Histogram over `HISTOGRAM_EDGES` of all values, standardized per attribute."""
    skewness: FloatArray
    constant: int
    """Number of attributes that are the same for all classes."""
    chance_correlation: float
    """Mean absolute correlation of independent normal attributes over as many classes."""

    @property
    def share_not_normal(self) -> float:
        """Share of attributes for which normality is rejected at 5 %."""
        return float((self.p_value < 0.05).mean())


def attribute_statistics(descriptors: npt.ArrayLike) -> AttributeStatistics:
    """Statistics over the classes of a descriptor table [n_classes, d_a]."""
    from scipy import stats

    table = np.asarray(descriptors, dtype=np.float64)
    n = len(table)
    if n < _FEWEST:
        raise DataError(f"statistics of attributes need at least {_FEWEST} classes, there are {n}")
    varying = np.ptp(table, axis=0) > 1e-9 * np.abs(table).max(axis=0).clip(min=1e-30)
    if not varying.any():
        raise DataError("all attributes are the same for all classes; use descriptors that differ between classes")
    standardized = stats.zscore(table[:, varying])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer than 20 classes: the test is less exact, not wrong
        test = stats.normaltest(standardized)
    correlations = np.abs(standardized.T @ standardized) / n
    return AttributeStatistics(
        chi2=test.statistic,
        p_value=test.pvalue,
        correlation=(correlations.sum(axis=1) - 1.0) / max(1, len(correlations) - 1),
        density=np.histogram(standardized, HISTOGRAM_EDGES, density=True)[0],
        skewness=stats.skew(standardized),
        constant=int((~varying).sum()),
        chance_correlation=float(np.sqrt(2.0 / (np.pi * (n - 1)))),
    )


Statistics = Mapping[str, AttributeStatistics]
"""Dataset → statistics of its attributes."""


def normality(statistics: Statistics, source: str = "Class descriptors") -> Artifact:
    """D'Agostino and Pearson's test of every attribute."""
    rows = [
        [name, str(len(s.chi2)), f"{np.median(s.chi2):.1f}", f"{100 * s.share_not_normal:.0f}"]
        for name, s in statistics.items()
    ]
    header = ["data", "attributes", "median χ²", "normality rejected at 5 %, % of attributes"]
    chi2 = [Series(name, name, [], rounded(s.chi2)) for name, s in statistics.items()]
    p_values = [Series(name, name, [], rounded(np.maximum(s.p_value, 1e-12))) for name, s in statistics.items()]
    return Artifact(
        "normality",
        "Normality test of the attributes",
        "",
        tables=[Table.of("D'Agostino and Pearson's test over the classes, per attribute", header, rows)],
        plots=[
            _boxes("chi2", "χ²", "χ² statistic", chi2, {"usual upper end for normal data": 5.0}),
            _boxes("p", "p-values", "p-value (cut at 1e-12)", p_values, {"5 %": 0.05}),
        ],
        notes=_notes(statistics, source),
        data={name: {"chi2": rounded(s.chi2), "p": rounded(s.p_value)} for name, s in statistics.items()},
    )


def _boxes(name: str, statistic: str, y_label: str, series: list[Series], lines_at: dict[str, float]) -> Plot:
    title = f"Normality test per attribute: {statistic}"
    return Plot(f"normality-{name}", "boxes", title, "", y_label, series, log_y=True, lines_at=lines_at)


def correlations(statistics: Statistics, source: str = "Class descriptors") -> Artifact:
    """Mean absolute correlation of every attribute with the others."""
    rows = [[name, f"{np.mean(s.correlation):.3f}", f"{s.chance_correlation:.3f}"] for name, s in statistics.items()]
    header = ["data", "mean absolute correlation", "of independent normal attributes"]
    series = [Series(name, name, [s.chance_correlation], rounded(s.correlation)) for name, s in statistics.items()]
    title = "Mean absolute correlation of an attribute with the others"
    return Artifact(
        "correlations",
        "Correlations between attributes",
        "",
        tables=[Table.of("Correlations between attributes, over classes", header, rows)],
        plots=[Plot("correlations", "boxes", title, "", "mean |correlation|", series)],
        notes=_notes(statistics, source),
        data={name: rounded(s.correlation) for name, s in statistics.items()},
    )


def histograms(statistics: Statistics, source: str = "Class descriptors") -> Artifact:
    """Histograms of the standardized attributes."""
    middle = rounded((HISTOGRAM_EDGES[1:] + HISTOGRAM_EDGES[:-1]) / 2)
    counts: dict[str, Any] = {name: rounded(s.density) for name, s in statistics.items()}
    rows = [
        [name, f"{np.mean(s.skewness):.2f}", f"{100 * np.mean(s.skewness > 0.5):.0f}"] for name, s in statistics.items()
    ]
    return Artifact(
        "histograms",
        "Histograms of standardized attributes",
        "",
        tables=[Table.of("Skewness of the attributes", ["data", "mean skewness", "% over 0.5"], rows)],
        plots=[
            Plot(
                f"histogram-{number}",
                "histogram",
                f"{name}: standardized attribute values",
                "standardized value",
                "density",
                [Series(name, name, middle, count)],
            )
            for number, (name, count) in enumerate(counts.items())
        ],
        notes=_notes(statistics, source),
        data=counts,
    )


def _notes(statistics: Statistics, source: str) -> list[str]:
    constant = ", ".join(f"{name} {s.constant}" for name, s in statistics.items() if s.constant)
    left_out = [f"Attributes that are the same for all classes are left out: {constant}."] if constant else []
    return [f"{source} of all classes; no image features are involved.", *left_out]


def attribute_advice(statistics: AttributeStatistics) -> list[str]:
    """Advice on the normalization of attributes."""
    n, percent = len(statistics.chi2), 100 * statistics.share_not_normal
    if percent > 50:
        normal = f"Attributes are far from normal (rejected for {percent:.0f} % of {n}); prefer unit norm."
    elif percent > 10:
        normal = f"Some attributes are not normal ({percent:.0f} % of {n}); unit norm is the safe choice."
    else:
        normal = f"Attributes look normal (rejected for {percent:.0f} % of {n}); standardizing them is safe, too."
    correlation, chance = float(statistics.correlation.mean()), statistics.chance_correlation
    independent = (
        f"They are not independent: mean absolute correlation {correlation:.2f}, {chance:.2f} is expected by chance."
        if correlation > 1.2 * chance
        else f"They are nearly independent: mean absolute correlation {correlation:.2f}, {chance:.2f} is chance."
    )
    n_constant = statistics.constant
    constant = f"{n_constant} attributes are the same for all classes and carry no information; drop them."
    return [normal, independent, *([constant] if n_constant else [])]
