"""Variance of the logits during training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from classnorm.experiments.diagnoses.logit_variance import variance_artifact, variance_curves, variance_tasks
from classnorm.reproduce.figures.figure import run_diagnoses, samples
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact
from classnorm.results.numbers import mean
from classnorm.results.verdicts import Verdict, judge_bounds, weakest

__all__ = ["variance"]

_NEAR = 10.0  # a variance near 1 is within this factor of it
_WELL_BELOW = 3.0  # a variance well below another is smaller by at least this factor


def variance(reproduction: Reproduction) -> Artifact:
    iterations, width, tasks = reproduction.effort.variance_iterations, reproduction.effort.diagnosis_width, {}
    for sample in samples(reproduction):
        tasks.update(
            variance_tasks(sample.label, sample.dataset, seeds=sample.seeds, iterations=iterations, width=width)
        )
    numbers = run_diagnoses(reproduction, "variance", tasks)
    artifact = variance_artifact(numbers)
    verdicts = [v for label, curves in variance_curves(numbers).items() for v in _verdicts(label, curves)]
    return replace(artifact, verdicts=verdicts, notes=artifact.notes + reproduction.missing)


def _verdicts(label: str, curves: dict[tuple[str, str], list[list[float]]]) -> list[Verdict]:
    start = {key: [run[0] for run in runs] for key, runs in curves.items()}
    linear, deep, cn = (start[model, "+NS +AN"] for model in ("Linear", "3-layer MLP", "3-layer MLP + CN"))
    neither = [float(np.median(run)) for run in curves["Linear", "−NS −AN"]]
    ratio = [a / b for a, b in zip(deep, linear, strict=True)]
    restored = [a / b for a, b in zip(cn, deep, strict=True)]
    near_one = f"within a factor {_NEAR:g} of 1"
    findings = [
        (
            f"Linear without NS and AN: the variance is far above 1 (over {_NEAR:g}, median of training)",
            f"{mean(neither):.3g}",
            judge_bounds(neither, low=_NEAR),
        ),
        (
            f"Linear +NS+AN: the variance at the start is near 1 ({near_one})",
            f"{mean(linear):.3g}",
            judge_bounds(linear, 1 / _NEAR, _NEAR),
        ),
        (
            f"3-layer MLP +NS+AN: well below the linear model at the start (by a factor {_WELL_BELOW:g})",
            f"{mean(deep):.3g}, {mean(ratio):.2g} of the linear model's",
            judge_bounds(ratio, high=1 / _WELL_BELOW),
        ),
        (
            f"CN restores it: {near_one}, and {_WELL_BELOW:g} times the plain MLP's",
            f"{mean(cn):.3g}, {mean(restored):.3g} times the plain MLP's",
            weakest(judge_bounds(cn, 1 / _NEAR, _NEAR), judge_bounds(restored, low=_WELL_BELOW)),
        ),
    ]
    return [Verdict(claim, label, measured, judgement) for claim, measured, judgement in findings]
