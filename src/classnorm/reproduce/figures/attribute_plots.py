"""Normality, correlations and histograms of attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from classnorm.analysis import AttributeStatistics, attribute_statistics
from classnorm.data import read_splits
from classnorm.experiments.diagnoses import attribute_distribution
from classnorm.reproduce.figures.figure import benchmarks_and_apy
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["correlations", "histograms", "normality"]


def normality(reproduction: Reproduction) -> Artifact:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        share = statistics.share_not_normal
        claim = "Attributes are not normal (rejected at 5 % for more than half of them)"
        return Verdict(claim, dataset, f"rejected for {100 * share:.0f} %", judge_bounds([share], low=0.5))

    return _figure(reproduction, attribute_distribution.normality, verdict)


def correlations(reproduction: Reproduction) -> Artifact:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        correlation, chance = float(np.mean(statistics.correlation)), statistics.chance_correlation
        return Verdict(
            "Attributes are not independent (mean absolute correlation over 1.2 times that of independent ones)",
            dataset,
            f"{correlation:.3f} against {chance:.3f}",
            judge_bounds([correlation / chance], low=1.2),
        )

    return _figure(reproduction, attribute_distribution.correlations, verdict)


def histograms(reproduction: Reproduction) -> Artifact:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        skewed = float(np.mean(statistics.skewness > 0.5))
        claim = "Standardized attributes are skewed to the right (skewness over 0.5 for most)"
        return Verdict(claim, dataset, f"{100 * skewed:.0f} % of the attributes", judge_bounds([skewed], low=0.5))

    return _figure(reproduction, attribute_distribution.histograms, verdict)


def _figure(
    reproduction: Reproduction,
    diagnosis: Callable[..., Artifact],
    verdict: Callable[[str, AttributeStatistics], Verdict],
) -> Artifact:
    """A diagnosis of all available attributes; image features are not needed."""
    statistics, missing = {}, []
    for benchmark in benchmarks_and_apy(reproduction):
        if benchmark.folder:
            statistics[benchmark.name] = attribute_statistics(read_splits(benchmark.folder, "original_att")[1])
        elif benchmark.missing:
            missing.append(benchmark.missing)
        else:
            statistics[benchmark.name] = attribute_statistics(benchmark.dataset.descriptors)
    is_raw = any(benchmark.folder for benchmark in reproduction.benchmarks)
    artifact = diagnosis(statistics, "Raw attributes (original_att)" if is_raw else "Class descriptors")
    verdicts = [verdict(f"{name}, {len(s.chi2)} attributes", s) for name, s in statistics.items()]
    return replace(artifact, verdicts=verdicts, notes=artifact.notes + missing)
