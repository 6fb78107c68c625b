"""Variance of the logits during training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from classnorm import analysis
from classnorm.data import ZeroShotDataset
from classnorm.experiments.diagnosis import Diagnosis
from classnorm.methods.classnorm import ClassNormConfig
from classnorm.reproduce.figures.figure import (
    FigureSpec,
    diagnose,
    mean_series,
    missing,
    samples,
)
from classnorm.reproduce.reproduction import Workshop
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.verdicts import Verdict, judge_bounds, weakest

__all__ = ["variance"]

_NEAR = 10.0  # a variance near 1 is within this factor of it
_WELL_BELOW = 3.0  # and one well below another is smaller by at least this factor
VARIANTS = {"+NS +AN": {}, "−AN": {"attribute_normalization": "standardize"}, "−NS": {"logits": "dot"}}
VARIANTS["−NS −AN"] = {**VARIANTS["−NS"], **VARIANTS["−AN"]}


def _config(dataset: ZeroShotDataset, workshop: Workshop, name: str) -> ClassNormConfig:
    """A model of the variance figure, as wide as the effort allows."""
    width = min(workshop.effort.smoothness_width, 1024)
    return analysis.variance_models(dataset)[name].replace(hidden=width)


def variance(spec: FigureSpec, workshop: Workshop) -> Artifact:
    """Logit variance during training."""
    data = list(samples(workshop))
    models = list(analysis.variance_models(data[0].dataset)) if data else []
    tasks = {
        (sample.label, model, variant, seed): Diagnosis(
            sample.dataset,
            "variance",
            _config(sample.dataset, workshop, model).replace(**changes),
            {"seed": seed, "iterations": workshop.effort.variance_iterations},
        )
        for sample in data
        for model in models
        for variant, changes in VARIANTS.items()
        for seed in range(sample.seeds)
    }
    numbers = diagnose(workshop, spec.name, list(tasks.values()))
    plots, verdicts, rows = [], [], []
    for number, sample in enumerate(data):
        curves = {
            (model, variant): [
                numbers[tasks[sample.label, model, variant, seed].name]["between"] for seed in range(sample.seeds)
            ]
            for model in models
            for variant in VARIANTS
        }
        series = [mean_series(f"{m} {v}", m, v, runs, start=1) for (m, v), runs in curves.items()]
        for part, chosen in (("linear", ("Linear",)), ("deep", tuple(models[1:]))):
            plots.append(
                Plot(
                    f"variance-{part}-{number}",
                    "lines",
                    f"{sample.label}: variance of the logits in training",
                    "iteration",
                    "variance between classes",
                    [s for s in series if s.model in chosen],
                    log_x=True,
                    log_y=True,
                    lines_at={"unit variance": 1.0},
                )
            )
        rows += [[sample.label, f"{m} {v}", *(_power(value) for value in _at(runs))] for (m, v), runs in curves.items()]
        verdicts += _variance_verdicts(sample.label, curves)
    header = ["data", "model", "at the start", "iteration 10", "median of training"]
    return Artifact(
        spec.name,
        spec.title,
        spec.says,
        tables=[Table.of("Variance of the logits between classes, mean over seeds", header, rows)],
        plots=plots,
        verdicts=verdicts,
        notes=[
            "The variance is that between the classes of a row, averaged over a batch: what a softmax sees. "
            "Attributes have unit norm without the factor √d_a; −AN standardizes them. γ = 5, Adam 5e-4, batches of "
            "256. Where a curve ends early, training diverged.",
            *missing(workshop),
        ],
        data={"variance": {" | ".join(map(str, key)): numbers[task.name] for key, task in tasks.items()}},
    )


def _at(runs: Sequence[Sequence[float]]) -> list[float]:
    return [
        float(np.mean([run[0] for run in runs])),
        float(np.mean([run[min(9, len(run) - 1)] for run in runs])),
        float(np.mean([np.median(run) for run in runs])),
    ]


def _power(value: float) -> str:
    return f"{value:.3g}"


def _variance_verdicts(label: str, curves: dict[tuple[str, str], list[list[float]]]) -> list[Verdict]:
    start = {key: [run[0] for run in runs] for key, runs in curves.items()}
    linear, deep, cn = (start[model, "+NS +AN"] for model in ("Linear", "3-layer MLP", "3-layer MLP + CN"))
    neither = [float(np.median(run)) for run in curves["Linear", "−NS −AN"]]
    ratio = [a / b for a, b in zip(deep, linear, strict=True)]
    restored = [a / b for a, b in zip(cn, deep, strict=True)]
    bounds = f"within a factor {_NEAR:g} of 1"
    return [
        Verdict(
            f"Linear without NS and AN: the variance is far above 1 (over {_NEAR:g}, median of training)",
            label,
            f"{np.mean(neither):.3g}",
            judge_bounds(neither, low=_NEAR),
        ),
        Verdict(
            f"Linear +NS+AN: the variance at the start is near 1 ({bounds})",
            label,
            f"{np.mean(linear):.3g}",
            judge_bounds(linear, 1 / _NEAR, _NEAR),
        ),
        Verdict(
            f"3-layer MLP +NS+AN: well below the linear model at the start (by a factor {_WELL_BELOW:g})",
            label,
            f"{np.mean(deep):.3g}, {np.mean(ratio):.2g} of the linear model's",
            judge_bounds(ratio, high=1 / _WELL_BELOW),
        ),
        Verdict(
            f"CN restores it: {bounds}, and {_WELL_BELOW:g} times the plain MLP's",
            label,
            f"{np.mean(cn):.3g}, {np.mean(restored):.3g} times the plain MLP's",
            weakest(judge_bounds(cn, 1 / _NEAR, _NEAR), judge_bounds(restored, low=_WELL_BELOW)),
        ),
    ]
