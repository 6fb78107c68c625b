"""Normality, correlations and histograms of class attributes: tables and plots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from classnorm.results.artifact import Artifact, Plot, Series, Table
from classnorm_lab.diagnoses.attributes import HISTOGRAM_EDGES, AttributeStatistics
from classnorm_lab.diagnoses.curves import rounded

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
