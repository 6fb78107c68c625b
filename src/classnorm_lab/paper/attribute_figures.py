"""The figures of attributes: normality, correlations and histograms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from classnorm.data import read_splits
from classnorm.results.artifact import Artifact
from classnorm_lab.diagnoses import attributes
from classnorm_lab.diagnoses.attributes import AttributeStatistics, attribute_statistics
from classnorm_lab.diagnoses.diagnosis import rounded
from classnorm_lab.paper.figures import datasets_and_apy, without_repeats
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding, Verdict, judge_bounds


def measure_attributes(reproduction: Reproduction) -> dict[str, Any]:
    """Statistics of all available attributes; image features are not needed."""
    tables, missing = [], []
    for paper_dataset in datasets_and_apy(reproduction):
        dataset = paper_dataset.name.partition(":")[0] if not paper_dataset.descriptors else paper_dataset.name
        if paper_dataset.folder and not paper_dataset.descriptors:
            table = read_splits(paper_dataset.folder, "original_att")[1]
        elif paper_dataset.missing:
            missing.append(paper_dataset.setting.missing)
            continue
        else:
            table = paper_dataset.dataset.descriptors
        tables.append((paper_dataset.name, table, (dataset, table)))
    kept, repeats = without_repeats(tables)
    is_raw = any(paper_dataset.folder for paper_dataset in reproduction.datasets)
    return {
        "source": "Raw attributes (original_att)" if is_raw else "Class descriptors",
        "statistics": {name: _as_json(attribute_statistics(table)) for name, table in kept},
        "notes": repeats + missing,
    }


def _as_json(statistics: AttributeStatistics) -> dict[str, Any]:
    return {
        name: rounded(value) if isinstance(value, np.ndarray) else value for name, value in asdict(statistics).items()
    }


def _of_json(document: Mapping[str, Any]) -> AttributeStatistics:
    values: dict[str, Any] = {n: np.array(v) if isinstance(v, list) else v for n, v in document.items()}
    return AttributeStatistics(**values)


def normality(numbers: Mapping[str, Any]) -> Finding:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        share = statistics.share_not_normal
        claim = "Attributes are not normal (rejected at 5 % for more than half of them)"
        return Verdict(claim, dataset, f"rejected for {100 * share:.0f} %", judge_bounds([share], low=0.5))

    return _figure(numbers, attributes.normality, verdict)


def correlations(numbers: Mapping[str, Any]) -> Finding:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        correlation, chance = float(np.mean(statistics.correlation)), statistics.chance_correlation
        return Verdict(
            "Attributes are not independent (mean absolute correlation over 1.2 times that of independent ones)",
            dataset,
            f"{correlation:.3f} against {chance:.3f}",
            judge_bounds([correlation / chance], low=1.2),
        )

    return _figure(numbers, attributes.correlations, verdict)


def histograms(numbers: Mapping[str, Any]) -> Finding:
    def verdict(dataset: str, statistics: AttributeStatistics) -> Verdict:
        skewed = float(np.mean(statistics.skewness > 0.5))
        claim = "Standardized attributes are skewed to the right (skewness over 0.5 for most)"
        return Verdict(claim, dataset, f"{100 * skewed:.0f} % of the attributes", judge_bounds([skewed], low=0.5))

    return _figure(numbers, attributes.histograms, verdict)


def _figure(
    numbers: Mapping[str, Any],
    diagnosis: Callable[..., Artifact],
    verdict: Callable[[str, AttributeStatistics], Verdict],
) -> Finding:
    statistics = {name: _of_json(document) for name, document in numbers["statistics"].items()}
    verdicts = [verdict(f"{name}, {len(s.chi2)} attributes", s) for name, s in statistics.items()]
    return Finding.about(diagnosis(statistics, numbers["source"]), verdicts, numbers["notes"])
