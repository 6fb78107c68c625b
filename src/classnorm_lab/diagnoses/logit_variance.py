"""Variance of the logits during training, with and without NS, AN and CN: tasks, table and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.numbers import mean
from classnorm_lab.diagnoses.curves import MODEL_COLORS, mean_series, rounded
from classnorm_lab.diagnoses.diagnosis import Diagnosis

VarianceKey = tuple[str, str, str, int]
"""Label of the dataset, model, variant, seed."""
VARIANCES = {"between": "between classes", "total": "of all logits"}
"""The variance between the classes of a row, averaged over a batch; and that of all logits of a batch."""
POINTS = ("0", "10", "100", "median")
"""Steps of the training (number of updates so far) for the table, and the median of all steps."""
_STEPS = (0, 1, 2, 3, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200, 299)  # that are kept of a curve
_WITHOUT_AN = {"attribute_normalization": "standardize"}
_WITHOUT_NS = {"logits": "dot"}
_ROOT = {"attribute_normalization": "unit"}
_VARIANTS: dict[str, dict[str, str]] = {
    "+NS +AN": {},
    "+NS +AN·√d_a": _ROOT,
    "−AN": _WITHOUT_AN,
    "−NS": _WITHOUT_NS,
    "−NS, AN·√d_a": {**_WITHOUT_NS, **_ROOT},
    "−NS −AN": {**_WITHOUT_NS, **_WITHOUT_AN},
}


def variance_tasks(
    label: str, dataset: ZeroShotDataset, *, seeds: int, iterations: int, width: int = 512
) -> dict[VarianceKey, Diagnosis]:
    """A task for each of the paper's three models, six variants and each seed."""
    from classnorm_lab.diagnoses.variance import variance_models  # PyTorch

    return {
        (label, model, variant, seed): Diagnosis(
            dataset, "variance", config.replace(hidden=width, **changes), {"seed": seed, "iterations": iterations}
        )
        for model, config in variance_models(dataset).items()
        for variant, changes in _VARIANTS.items()
        for seed in range(seeds)
    }


def variance_summary(curves: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Both variances at some steps of a training, and their medians over all its steps."""
    n = len(curves["between"])
    steps = [step for step in _STEPS if step < n]
    return {
        "steps": steps,
        **{kind: rounded(curves[kind][step] for step in steps) for kind in VARIANCES},
        "median": dict(zip(VARIANCES, rounded(np.median(curves[kind]) for kind in VARIANCES), strict=True)),
    }


def variance_at(summary: Mapping[str, Any], kind: str, point: str) -> float:
    """A variance at one of `POINTS`; after the end of a training, its last."""
    if point == "median":
        return float(summary["median"][kind])
    return float([value for step, value in zip(summary["steps"], summary[kind], strict=True) if step <= int(point)][-1])


def variance_artifact(summaries: Mapping[VarianceKey, Mapping[str, Any]]) -> Artifact:
    """Table and plots of the summaries of `variance_tasks`, for one or several datasets."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for (label, model, variant, _), summary in summaries.items():
        groups.setdefault((label, model, variant), []).append(summary)
    columns = [(kind, point) for kind in VARIANCES for point in POINTS]
    rows = [
        [
            label,
            f"{model} {variant}",
            str(len(runs)),
            *(f"{mean([variance_at(run, kind, point) for run in runs]):.3g}" for kind, point in columns),
        ]
        for (label, model, variant), runs in groups.items()
    ]
    header = ["data", "model", "seeds"]
    header += [f"{VARIANCES[kind]}, {point if point == 'median' else f'step {point}'}" for kind, point in columns]
    return Artifact(
        "variance",
        "Variance of the logits in training",
        "",
        tables=[Table.of("Variance of the logits, mean over seeds", header, rows)],
        plots=[
            plot for i, label in enumerate(dict.fromkeys(k[0] for k in groups)) for plot in _plots(label, groups, i)
        ],
        notes=[
            "“Between classes” is the variance between the classes of a row, averaged over a batch: what a softmax "
            "sees. “Of all logits” also has the shifts that are common to the classes of a row. AN is unit norm, as in "
            "the paper's theory, AN·√d_a that of the authors' release; −AN standardizes the attributes. γ = 5, Adam "
            "5e-4, batches of 256. The linear model is V·a with Xavier's fan-out initialisation, as the theory "
            "assumes; the MLPs have PyTorch's default, with CN the proper variance in the last layer. Where a curve "
            "ends early, training diverged. The plots show the variance between classes with unit norm. These are the "
            "models of the paper's figures; a recipe is wider and has AN·√d_a, so its variance at step 0 is another."
        ],
        data={"variance": {" | ".join(map(str, key)): summary for key, summary in summaries.items()}},
    )


def _plots(label: str, groups: Mapping[tuple[str, str, str], Sequence[Mapping[str, Any]]], n: int) -> Iterator[Plot]:
    series = [
        mean_series(
            f"{model} {variant}",
            model,
            variant.removeprefix("+NS +AN"),
            [run["between"] for run in runs],
            x=runs[0]["steps"],
            shift=1,
        )
        for (data, model, variant), runs in groups.items()
        if data == label and "√" not in variant
    ]
    for name, is_linear in (("linear", True), ("deep", False)):
        yield Plot(
            f"variance-{name}-{n}",
            "lines",
            f"{label}: variance of the logits in training",
            "iteration",
            "variance between classes",
            [line for line in series if (line.model == "Linear") == is_linear],
            log_x=True,
            log_y=True,
            lines_at={"unit variance": 1.0},
            colors=MODEL_COLORS,
        )
