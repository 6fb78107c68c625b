"""Streams task by task: curves, the matrix of accuracies and the table of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from classnorm.report.summary import STREAM_COSTS, Group, score_digits
from classnorm.results.artifact import Plot, Series, Table
from classnorm.results.numbers import mean_text, number_text
from classnorm.results.run_folder import Result

STEPS = {
    "seen": ("S", "Accuracy on the classes learnt so far"),
    "unseen": ("U", "Accuracy on the classes still to come"),
    "harmonic": ("H", "Harmonic mean of S and U"),
    "ausuc": ("AUSUC", "Area under the seen–unseen curve"),
    "joint": ("joint", "Accuracy on all classes"),
    "forgetting": ("forgetting", "Forgetting; lower is better"),
}
"""Scores after each task: name in JSON → (column title, meaning)."""


def task_values(results: Sequence[Result], score: str) -> npt.NDArray[np.float64]:
    """A score after each task, [seeds, tasks]; NaN if undefined."""
    return np.array([[step[score] for step in result.document["per_task"]] for result in results], dtype=np.float64)


def task_curve(
    label: str, model: str, results: Sequence[Result], score: str, variant: str = "", band: bool = False
) -> Series:
    """A score against the number of tasks, without undefined values: mean over seeds and, as a band, their range."""
    values = task_values(results, score)
    tasks = np.flatnonzero(~np.isnan(values).any(axis=0))
    values = values[:, tasks]
    series = Series(label, model, (tasks + 1.0).tolist(), values.mean(axis=0).round(4).tolist(), variant=variant)
    if not band or len(results) == 1:
        return series
    return replace(series, low=values.min(axis=0).tolist(), high=values.max(axis=0).tolist())


def mean_matrix(group: Group) -> npt.NDArray[np.float64]:
    """[tasks, tasks]: accuracy on task j (column) after task l (row) in percent, mean over seeds."""
    matrices = [np.array(result.document["matrix"], dtype=np.float64) for result in group.results]
    return np.asarray(np.mean(matrices, axis=0))


def stream_plots(groups: Sequence[Group]) -> list[Plot]:
    """A plot for each score, with a line per group, and a heat map for each group, all on one scale."""
    plots = []
    for score, (short, meaning) in STEPS.items():
        curves = [task_curve(group.label, group.label, group.results, score, band=True) for group in groups]
        series = [curve for curve in curves if curve.x]
        unit = "" if score == "forgetting" else " (%)"
        if series:
            plots.append(Plot(f"stream-{score}", "lines", meaning, "after task", f"{short}{unit}", series))
    matrices = [mean_matrix(group) for group in groups]
    top = max(float(np.nanmax(matrix, initial=1.0)) for matrix in matrices)
    for number, (group, matrix) in enumerate(zip(groups, matrices, strict=True), start=1):
        columns = np.arange(1.0, len(matrix) + 1).tolist()
        rows = [Series(str(task), group.label, columns, row.tolist()) for task, row in enumerate(matrix, start=1)]
        name = f"stream-matrix-{number}"
        plots.append(Plot(name, "heatmap", group.label, "accuracy on task (%)", "after task", rows, limits=[0.0, top]))
    return plots


def step_table(group: Group, title: str = "") -> Table:
    """The scores after each task, mean ± standard deviation over seeds."""
    cells = {
        name: [mean_text(values.tolist(), score_digits(name)) for values in task_values(group.results, name).T]
        for name in STEPS
    }
    rows = [[f"after task {t}", *row] for t, row in enumerate(zip(*cells.values(), strict=True), start=1)]
    return Table.of(title, ["", *(short for short, _ in STEPS.values())], rows)


def cost_table(groups: Sequence[Group]) -> Table:
    """What each strategy cost, mean over seeds."""
    rows = []
    for group in groups:
        seconds, stored, passed = (group.mean(name) for name in STREAM_COSTS)
        rows.append([group.label, number_text(seconds), number_text(stored / 1e6, 2), number_text(passed / 1e3)])
    return Table.of("", ["strategy", "seconds of training", "stored, MB", "rows passed, thousands"], rows)
