"""Normality, correlations and histograms of attributes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from classnorm.analysis import AttributeStatistics, attribute_statistics
from classnorm.data import read_splits
from classnorm.experiments.diagnoses import attribute_distribution
from classnorm.reproduce.figures.figure import FigureSpec, benchmarks_and_apy
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["correlations", "histograms", "normality"]


def normality(spec: FigureSpec, reproduction: Reproduction) -> Artifact:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        return Verdict(
            "Attributes are not normal (rejected at 5 % for more than half of them)",
            dataset,
            f"rejected for {100 * statistics.share_not_normal:.0f} %",
            judge_bounds([statistics.share_not_normal], low=0.5),
        )

    return _figure(spec, reproduction, attribute_distribution.normality, verdict)


def correlations(spec: FigureSpec, reproduction: Reproduction) -> Artifact:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        correlation, chance = float(np.mean(statistics.correlation)), statistics.chance_correlation
        return Verdict(
            "Attributes are not independent (mean absolute correlation over 1.2 times that of independent ones)",
            dataset,
            f"{correlation:.3f} against {chance:.3f}",
            judge_bounds([correlation / chance], low=1.2),
        )

    return _figure(spec, reproduction, attribute_distribution.correlations, verdict)


def histograms(spec: FigureSpec, reproduction: Reproduction) -> Artifact:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        skewed = float(np.mean(statistics.skewness > 0.5))
        return Verdict(
            "Standardized attributes are skewed to the right (skewness over 0.5 for most)",
            dataset,
            f"{100 * skewed:.0f} % of the attributes",
            judge_bounds([skewed], low=0.5),
        )

    return _figure(spec, reproduction, attribute_distribution.histograms, verdict)


def _figure(
    spec: FigureSpec,
    reproduction: Reproduction,
    diagnosis: Callable[..., Artifact],
    verdict: Callable[[str, AttributeStatistics], Verdict],
) -> Artifact:
    """A diagnosis of every table of attributes that is available; features are not needed."""
    statistics, missing = {}, []
    for benchmark in benchmarks_and_apy(reproduction):
        if benchmark.attributes:
            statistics[benchmark.name] = attribute_statistics(read_splits(benchmark.attributes, "original_att")[1])
        elif benchmark.missing:
            missing.append(benchmark.missing)
        else:
            statistics[benchmark.name] = attribute_statistics(benchmark.dataset.descriptors)
    is_raw = any(benchmark.folder for benchmark in reproduction.benchmarks)
    source = "Raw attributes (original_att)" if is_raw else "Class descriptors"
    verdicts = [verdict(f"{name}, {len(s.chi2)} attributes", s) for name, s in statistics.items()]
    return spec.artifact(diagnosis(statistics, source), verdicts, missing)
