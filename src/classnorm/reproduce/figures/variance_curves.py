"""Variance of the logits during training."""

from __future__ import annotations

import numpy as np

from classnorm.experiments.diagnoses.logit_variance import variance_artifact, variance_curves, variance_tasks
from classnorm.reproduce.figures.figure import FigureSpec, run_diagnoses, samples
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact
from classnorm.results.numbers import mean
from classnorm.results.verdicts import Verdict, judge_bounds, weakest

__all__ = ["variance"]

_NEAR = 10.0  # a variance near 1 is within this factor of it
_WELL_BELOW = 3.0  # and one well below another is smaller by at least this factor


def variance(spec: FigureSpec, reproduction: Reproduction) -> Artifact:
    effort = reproduction.effort
    tasks = {
        key: task
        for sample in samples(reproduction)
        for key, task in variance_tasks(
            sample.label,
            sample.dataset,
            seeds=sample.seeds,
            iterations=effort.variance_iterations,
            width=effort.diagnosis_width,
        ).items()
    }
    numbers = run_diagnoses(reproduction, spec.name, tasks)
    verdicts = [v for label, curves in variance_curves(numbers).items() for v in _verdicts(label, curves)]
    return spec.artifact(variance_artifact(numbers), verdicts, reproduction.missing)


def _verdicts(label: str, curves: dict[tuple[str, str], list[list[float]]]) -> list[Verdict]:
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
            f"{mean(neither):.3g}",
            judge_bounds(neither, low=_NEAR),
        ),
        Verdict(
            f"Linear +NS+AN: the variance at the start is near 1 ({bounds})",
            label,
            f"{mean(linear):.3g}",
            judge_bounds(linear, 1 / _NEAR, _NEAR),
        ),
        Verdict(
            f"3-layer MLP +NS+AN: well below the linear model at the start (by a factor {_WELL_BELOW:g})",
            label,
            f"{mean(deep):.3g}, {mean(ratio):.2g} of the linear model's",
            judge_bounds(ratio, high=1 / _WELL_BELOW),
        ),
        Verdict(
            f"CN restores it: {bounds}, and {_WELL_BELOW:g} times the plain MLP's",
            label,
            f"{mean(cn):.3g}, {mean(restored):.3g} times the plain MLP's",
            weakest(judge_bounds(cn, 1 / _NEAR, _NEAR), judge_bounds(restored, low=_WELL_BELOW)),
        ),
    ]
