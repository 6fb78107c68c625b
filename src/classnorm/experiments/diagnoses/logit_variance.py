"""Variance of the logits during training, with and without NS, AN and CN: tasks, table and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from classnorm import analysis
from classnorm.data import ZeroShotDataset
from classnorm.experiments.diagnoses.curves import mean_series
from classnorm.experiments.diagnoses.diagnosis import Diagnosis
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.numbers import mean

__all__ = ["VarianceKey", "variance_artifact", "variance_curves", "variance_tasks"]

VarianceKey = tuple[str, str, str, int]
"""Label of the dataset, model, variant, seed."""
Curves = dict[tuple[str, str], list[list[float]]]
"""(model, variant) → variance at every iteration, for each seed."""

_WITHOUT_AN = {"attribute_normalization": "standardize"}
_WITHOUT_NS = {"logits": "dot"}
_VARIANTS = {"+NS +AN": {}, "−AN": _WITHOUT_AN, "−NS": _WITHOUT_NS, "−NS −AN": {**_WITHOUT_NS, **_WITHOUT_AN}}


def variance_tasks(
    label: str, dataset: ZeroShotDataset, *, seeds: int, iterations: int, width: int = 512
) -> dict[VarianceKey, Diagnosis]:
    """A task for each of the paper's three models, four variants and each seed."""
    return {
        (label, model, variant, seed): Diagnosis(
            dataset, "variance", config.replace(hidden=width, **changes), {"seed": seed, "iterations": iterations}
        )
        for model, config in analysis.variance_models(dataset).items()
        for variant, changes in _VARIANTS.items()
        for seed in range(seeds)
    }


def variance_curves(numbers: Mapping[VarianceKey, Any]) -> dict[str, Curves]:
    """Dataset → curves of the variance between classes."""
    curves: dict[str, Curves] = {}
    for (label, model, variant, _), values in numbers.items():
        curves.setdefault(label, {}).setdefault((model, variant), []).append(values["between"])
    return curves


def variance_artifact(numbers: Mapping[VarianceKey, Any]) -> Artifact:
    """Table and plots of the numbers of `variance_tasks`, for one or several datasets."""
    datasets = variance_curves(numbers)
    rows = [
        [label, f"{model} {variant}", *(f"{value:.3g}" for value in _summary(runs))]
        for label, curves in datasets.items()
        for (model, variant), runs in curves.items()
    ]
    header = ["data", "model", "at the start", "iteration 10", "median of training"]
    return Artifact(
        "variance",
        "Variance of the logits in training",
        "",
        tables=[Table.of("Variance of the logits between classes, mean over seeds", header, rows)],
        plots=[plot for i, (label, curves) in enumerate(datasets.items()) for plot in _plots(label, curves, i)],
        notes=[
            "The variance is that between the classes of a row, averaged over a batch: what a softmax sees. "
            "Attributes have unit norm without the factor √d_a; −AN standardizes them. γ = 5, Adam 5e-4, batches of "
            "256. Where a curve ends early, training diverged."
        ],
        data={"variance": {" | ".join(map(str, key)): values for key, values in numbers.items()}},
    )


def _summary(runs: Sequence[Sequence[float]]) -> list[float]:
    """Variance at the start, at iteration 10 and its median, mean over seeds."""
    return [
        mean([run[0] for run in runs]),
        mean([run[min(9, len(run) - 1)] for run in runs]),
        mean([float(np.median(run)) for run in runs]),
    ]


def _plots(label: str, curves: Curves, number: int) -> Iterator[Plot]:
    series = [mean_series(f"{m} {v}", m, v, runs, start=1) for (m, v), runs in curves.items()]
    for name, is_linear in (("linear", True), ("deep", False)):
        yield Plot(
            f"variance-{name}-{number}",
            "lines",
            f"{label}: variance of the logits in training",
            "iteration",
            "variance between classes",
            [line for line in series if (line.model == "Linear") == is_linear],
            log_x=True,
            log_y=True,
            lines_at={"unit variance": 1.0},
        )
