"""Smoothness of the loss surface during training: tasks, table and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from classnorm import analysis
from classnorm.data import ZeroShotDataset
from classnorm.experiments.diagnoses.curves import mean_series
from classnorm.experiments.diagnoses.diagnosis import Diagnosis
from classnorm.methods.settings.classnorm import reference
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.numbers import mean

__all__ = ["SmoothnessKey", "mean_gradient_norms", "smoothness_artifact", "smoothness_tasks"]

SmoothnessKey = tuple[str, str, int]
"""Label of the dataset, model, seed."""
Curves = dict[str, dict[str, list[Sequence[float]]]]
"""Dataset → model → gradient norms during training, for each seed."""


def smoothness_tasks(
    label: str, dataset: ZeroShotDataset, *, seeds: int, iterations: int, every: int, width: int
) -> dict[SmoothnessKey, Diagnosis]:
    """A task for each of `analysis.SMOOTHNESS_MODELS` and each seed."""
    config = reference(dataset).replace(hidden=width)
    return {
        (label, model, seed): Diagnosis(
            dataset, "smoothness", config, {"model": model, "seed": seed, "iterations": iterations, "every": every}
        )
        for model in analysis.SMOOTHNESS_MODELS
        for seed in range(seeds)
    }


def _curves(numbers: Mapping[SmoothnessKey, Sequence[float]]) -> Curves:
    curves: Curves = {}
    for (label, model, _), norms in numbers.items():
        curves.setdefault(label, {}).setdefault(model, []).append(norms)
    return curves


def mean_gradient_norms(numbers: Mapping[SmoothnessKey, Sequence[float]]) -> dict[str, dict[str, list[float]]]:
    """Dataset → model → mean gradient norm over the training, for each seed."""
    return {
        label: {model: [mean(run) for run in runs] for model, runs in models.items()}
        for label, models in _curves(numbers).items()
    }


def smoothness_artifact(numbers: Mapping[SmoothnessKey, Sequence[float]], every: int) -> Artifact:
    """Table and plots of the numbers of `smoothness_tasks`, for one or several datasets."""
    models = analysis.SMOOTHNESS_MODELS
    norms = mean_gradient_norms(numbers)
    rows = [[label, *(f"{mean(norms[label][model]):.2e}" for model in models)] for label in norms]
    return Artifact(
        "smoothness",
        "Smoothness of the loss surface",
        "",
        tables=[Table.of("Mean over the training of the largest norm", ["data", *models], rows)],
        plots=[_plot(label, curves, i, every) for i, (label, curves) in enumerate(_curves(numbers).items())],
        notes=[
            "The largest gradient norm over 10 batches of 256 rows with standard normal noise, divided by the number "
            f"of parameters, every {every} iterations; Adam 1e-4, batches of 256.",
            "The paper does not say whether its models have normalize+scale here, so both are shown. A cosine does not "
            "change with the length of a prototype, so its gradient grows as prototypes get shorter, and CN starts "
            "with short ones.",
        ],
        data={"smoothness": {" | ".join(map(str, key)): norms for key, norms in numbers.items()}},
    )


def _plot(label: str, curves: Mapping[str, Sequence[Sequence[float]]], number: int, every: int) -> Plot:
    series = [
        mean_series(model, model.removesuffix(" −NS"), "−NS" * model.endswith("−NS"), runs, step=every)
        for model, runs in curves.items()
    ]
    title = f"{label}: largest gradient norm"
    return Plot(f"smoothness-{number}", "lines", title, "iteration", "gradient norm / parameters", series, log_y=True)
