"""Normality, correlations and histograms of attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from classnorm import analysis
from classnorm.data import read_splits
from classnorm.reproduce.figures.figure import (
    FigureSpec,
    beyond,
    rounded,
)
from classnorm.reproduce.reproduction import Workshop
from classnorm.results.artifact import Artifact, Plot, Series, Table
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["correlations", "histograms", "normality"]


def attribute_tables(workshop: Workshop) -> dict[str, Any]:
    """Attribute statistics of every dataset whose attributes are at hand; no features are needed."""
    found: dict[str, Any] = {}
    for column in [*workshop.columns, *beyond(workshop)]:
        if column.attributes:
            found[column.name] = analysis.attribute_statistics(read_splits(column.attributes, "original_att")[1])
        elif not column.missing:
            found[column.name] = analysis.attribute_statistics(column.dataset.descriptors)
    return found


def normality(spec: FigureSpec, workshop: Workshop) -> Artifact:
    statistics = attribute_tables(workshop)
    boxes = {
        "chi2": [Series(name, name, [], rounded(found.chi2)) for name, found in statistics.items()],
        "p": [Series(name, name, [], rounded(np.maximum(found.p_value, 1e-12))) for name, found in statistics.items()],
    }
    plots = [
        Plot(
            "normality-chi2",
            "boxes",
            "Normality test per attribute: χ²",
            "",
            "χ² statistic",
            boxes["chi2"],
            log_y=True,
            lines_at={"usual upper end for normal data": 5.0},
        ),
        Plot(
            "normality-p",
            "boxes",
            "Normality test per attribute: p-values",
            "",
            "p-value (cut at 1e-12)",
            boxes["p"],
            log_y=True,
            lines_at={"5 %": 0.05},
        ),
    ]
    rows = [
        [name, str(len(s.chi2)), f"{np.median(s.chi2):.1f}", f"{100 * s.share_not_normal:.0f}"]
        for name, s in statistics.items()
    ]
    verdicts = [
        Verdict(
            "Attributes are not normal (rejected at 5 % for more than half of them)",
            f"{name}, {len(s.chi2)} attributes",
            f"rejected for {100 * s.share_not_normal:.0f} %",
            judge_bounds([s.share_not_normal], low=0.5),
        )
        for name, s in statistics.items()
    ]
    header = ["data", "attributes", "median χ²", "normality rejected at 5 %, % of attributes"]
    return Artifact(
        spec.name,
        spec.title,
        spec.says,
        tables=[Table.of("D'Agostino and Pearson's test over the classes, per attribute", header, rows)],
        plots=plots,
        verdicts=verdicts,
        notes=_attribute_notes(workshop, statistics),
        data={name: {"chi2": rounded(s.chi2), "p": rounded(s.p_value)} for name, s in statistics.items()},
    )


def _attribute_notes(workshop: Workshop, statistics: dict[str, Any]) -> list[str]:
    absent = [c.missing for c in [*workshop.columns, *beyond(workshop)] if c.missing and c.name not in statistics]
    constant = {name: s.constant for name, s in statistics.items() if s.constant}
    text = ", ".join(f"{name} {count}" for name, count in constant.items())
    left_out = [f"Attributes that are the same for all classes are left out: {text}."] if text else []
    raw = any(column.folder for column in workshop.columns)
    which = "Raw attributes (original_att)" if raw else "Class descriptors"
    return [f"{which} of all classes; no image features are involved.", *left_out, *absent]


def correlations(spec: FigureSpec, workshop: Workshop) -> Artifact:
    statistics = attribute_tables(workshop)
    plot = Plot(
        "correlations",
        "boxes",
        "Mean absolute correlation of an attribute with the others",
        "",
        "mean |correlation|",
        [Series(name, name, [s.chance_correlation], rounded(s.correlation)) for name, s in statistics.items()],
    )
    rows = [[name, f"{np.mean(s.correlation):.3f}", f"{s.chance_correlation:.3f}"] for name, s in statistics.items()]
    verdicts = [
        Verdict(
            "Attributes are not independent (mean absolute correlation over 1.2 times that of independent ones)",
            f"{name}, {len(s.correlation)} attributes",
            f"{np.mean(s.correlation):.3f} against {s.chance_correlation:.3f}",
            judge_bounds([float(np.mean(s.correlation)) / s.chance_correlation], low=1.2),
        )
        for name, s in statistics.items()
    ]
    header = ["data", "mean absolute correlation", "of independent normal attributes"]
    return Artifact(
        spec.name,
        spec.title,
        spec.says,
        tables=[Table.of("Correlations between attributes, over classes", header, rows)],
        plots=[plot],
        verdicts=verdicts,
        notes=_attribute_notes(workshop, statistics),
        data={name: rounded(s.correlation) for name, s in statistics.items()},
    )


def histograms(spec: FigureSpec, workshop: Workshop) -> Artifact:
    statistics = attribute_tables(workshop)
    edges = np.linspace(-3, 6, 46)
    middle = rounded((edges[1:] + edges[:-1]) / 2)
    counts = {name: np.histogram(s.standardized, edges, density=True)[0] for name, s in statistics.items()}
    plots = [
        Plot(
            f"histogram-{number}",
            "histogram",
            f"{name}: standardized attribute values",
            "standardized value",
            "density",
            [Series(name, name, middle, rounded(counts[name]))],
        )
        for number, name in enumerate(statistics)
    ]
    rows = [
        [name, f"{np.mean(s.skewness):.2f}", f"{100 * np.mean(s.skewness > 0.5):.0f}"] for name, s in statistics.items()
    ]
    verdicts = [
        Verdict(
            "Standardized attributes are skewed to the right (skewness over 0.5 for most)",
            f"{name}, {len(s.skewness)} attributes",
            f"{100 * np.mean(s.skewness > 0.5):.0f} % of the attributes",
            judge_bounds([float(np.mean(s.skewness > 0.5))], low=0.5),
        )
        for name, s in statistics.items()
    ]
    return Artifact(
        spec.name,
        spec.title,
        spec.says,
        tables=[Table.of("Skewness of the attributes", ["data", "mean skewness", "% over 0.5"], rows)],
        plots=plots,
        verdicts=verdicts,
        notes=_attribute_notes(workshop, statistics),
        data={name: rounded(count) for name, count in counts.items()},
    )
