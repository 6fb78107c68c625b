"""The paper's continual part: its table and its curves, with settings by the validation sequence and as published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from classnorm.continual import TaskStream, configure, read_image_split
from classnorm.errors import TrainingError
from classnorm.experiments.continual import SCORES, VALIDATION_TASKS, ContinualExperiment, read_scores, validated
from classnorm.experiments.reproduce.artifact import Artifact, Plot, Series, Table, Verdict
from classnorm.experiments.reproduce.claims import judge_difference
from classnorm.experiments.reproduce.columns import Column
from classnorm.experiments.reproduce.published import published, published_columns
from classnorm.experiments.reproduce.run import Workshop

__all__ = ["ARMS", "Arm", "czsl_curves", "czsl_table"]

Protocol = Literal["tuned", "published"]
_LIFT = 0.3  # the paper: CN lifts mH by 30 to 50 %


@dataclass(frozen=True)
class Arm:
    """A strategy with or without class normalization."""

    label: str
    strategy: str
    class_norm: bool
    published: str = ""

    @property
    def model(self) -> str:
        return self.label.removesuffix(" + CN")


def _pair(label: str, strategy: str, published: str = "") -> tuple[Arm, Arm]:
    cn = f"{published} + ClassNorm" if published else ""
    return Arm(label, strategy, False, published), Arm(f"{label} + CN", strategy, True, cn)


ARMS = (
    *_pair("EWC-online", "ewc", "EWC-online"),
    *_pair("MAS-online", "mas", "MAS-online"),
    *_pair("A-GEM", "agem", "A-GEM"),
    *_pair("Sequential", "sequential", "Sequential"),
    *_pair("Multi-task", "multitask", "Multi-task"),
    *_pair("Replay", "replay"),
    *_pair("LwF", "lwf"),
)
"""The paper's five methods, and two more that users compare with."""

Runs = dict[tuple[str, Protocol], list[dict[str, Any]]]
"""(arm, protocol) → a result per seed."""


def _run(workshop: Workshop, column: Column) -> Runs:
    """Every arm under both protocols, on the tasks that no validation has used."""
    dataset = column.dataset
    if workshop.image_split is not None and column.name == "CUB":
        dataset = replace(dataset, is_train=read_image_split(workshop.image_split, dataset.image_files))
    experiments: dict[str, list[ContinualExperiment]] = {}
    for arm in ARMS:
        for seed in range(workshop.effort.seeds):
            stream = TaskStream.make(dataset, None, seed)
            config = configure(stream, arm.strategy, class_norm=arm.class_norm, epochs=workshop.effort.stream_epochs)
            experiments.setdefault(arm.label, []).append(
                ContinualExperiment(dataset, arm.strategy, config, seed, part=(VALIDATION_TASKS, None))
            )
    flat = [experiment for group in experiments.values() for experiment in group]
    with workshop.progress(f"{column.name}: validation sequences") as progress:
        tuned = validated(flat, workshop.folder / "runs", workshop.engine, progress=progress)
    failed = workshop.run(f"{column.name}: streams", [*flat, *tuned])
    if failed:
        raise TrainingError(f"{column.name}: {next(iter(failed.values()))}")
    runs: Runs = {}
    chosen = iter(tuned)
    for label, group in experiments.items():
        for experiment in group:
            for protocol, which in (("published", experiment), ("tuned", next(chosen))):
                key: Any = (label, protocol)
                runs.setdefault(key, []).append(read_scores(workshop.folder / "runs" / which.name))
    return runs


def _values(runs: Sequence[Mapping[str, Any]], score: str) -> list[float]:
    return [float(run["scores"][score]) for run in runs]


_SAYS = (
    "Class normalization improves every continual method, mH by 30 to 50 %, and makes them forget less (except where "
    "there is little to forget)."
)
_PROTOCOLS: dict[Protocol, str] = {
    "tuned": "settings chosen by each arm's own validation sequence (the first 3 tasks, by mAUC)",
    "published": "the published learning rate 1e-3 for all arms, nothing chosen",
}


def czsl_table(workshop: Workshop) -> Artifact:
    tables, verdicts, data = [], [], {}
    for column in workshop.at_hand:
        runs = _run(workshop, column)
        for protocol, words in _PROTOCOLS.items():
            tables.append(_table(column, protocol, words, runs))
            verdicts += _verdicts(column, protocol, runs)
        data[column.label] = {" | ".join(key): [run["scores"] for run in group] for key, group in runs.items()}
    columns = published_columns("czsl-table")
    theirs = [[row.label, *(row.cells[c] for c in columns)] for row in published("czsl-table").values()]
    tables.append(Table.of("The paper's figures (ResNet-18 trained along)", ["published", *columns], theirs))
    return Artifact(
        "czsl-table",
        "Continual zero-shot learning",
        _SAYS,
        tables=tables,
        verdicts=verdicts,
        notes=[*_NOTES, *(column.missing for column in workshop.columns if column.missing)],
        data=data,
    )


_NOTES = (
    "Frozen features; 2-layer embedder with 256 units, γ = 5, SGD, batches of 32. The first 3 tasks only choose, "
    "the others are learnt by a fresh model and reported, in the label space of their own classes. Accuracies are "
    "averaged over classes. In brackets: change by CN, relative to the arm without it.",
)


def _table(column: Column, protocol: Protocol, words: str, runs: Runs) -> Table:
    body = []
    for arm in ARMS:
        group = runs[arm.label, protocol]
        plain = runs[arm.model, protocol]
        cells = [arm.label]
        for score in SCORES:
            values = _values(group, score)
            mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            digits = 2 if score == "forgetting" else 1
            text = f"{mean:.{digits}f} ± {spread:.{digits}f}"
            base = float(np.mean(_values(plain, score)))
            if arm.class_norm and abs(base) > 0.005:
                text += f" ({100 * (mean - base) / abs(base):+.0f} %)".replace("-", "−")
            cells.append(text)
        cells.append(", ".join(dict.fromkeys(f"{run['config']['lr']:g}" for run in group)))
        body.append(cells)
    split = runs[ARMS[0].label, protocol][0]["stream"]["image_split"]
    title = f"{column.label}, {split} image split: {words}"
    return Table.of(title, ["method", *SCORES, "learning rates"], body)


def _verdicts(column: Column, protocol: Protocol, runs: Runs) -> list[Verdict]:
    found = []
    for arm in ARMS:
        if not arm.class_norm or not arm.published:
            continue
        cn, plain = runs[arm.label, protocol], runs[arm.model, protocol]
        new, old = _values(cn, "mH"), _values(plain, "mH")
        margin = _LIFT * float(np.mean(old))
        found.append(
            Verdict(
                f"{protocol}: CN lifts {arm.model}'s mH (by {100 * _LIFT:.0f} %)",
                column.label,
                f"{np.mean(old):.1f} → {np.mean(new):.1f} ({100 * (np.mean(new) / np.mean(old) - 1):+.0f} %)",
                judge_difference(new, old, margin),
            )
        )
        less, more = _values(cn, "forgetting"), _values(plain, "forgetting")
        found.append(
            Verdict(
                f"{protocol}: CN lowers {arm.model}'s forgetting",
                column.label,
                f"{np.mean(more):.2f} → {np.mean(less):.2f}",
                judge_difference(more, less, 0.0),
            )
        )
    return found


_CURVES = {
    "seen": "GZSL-S (%)",
    "unseen": "GZSL-U (%)",
    "harmonic": "GZSL-H (%)",
    "ausuc": "AUSUC (%)",
    "joint": "joint accuracy (%)",
    "forgetting": "forgetting",
}


def czsl_curves(workshop: Workshop) -> Artifact:
    plots = []
    for number, column in enumerate(workshop.at_hand):
        runs = _run(workshop, column)
        for score, label in _CURVES.items():
            series = []
            for arm in ARMS:
                steps = [[step[score] for step in run["per_task"]] for run in runs[arm.label, "tuned"]]
                points = [
                    (t + 1.0, float(np.mean(values)))
                    for t, values in enumerate(zip(*steps, strict=True))
                    if None not in values
                ]
                x, y = zip(*points, strict=True)
                variant = "+ CN" if arm.class_norm else "plain"
                series.append(Series(arm.label, arm.model, list(x), [round(v, 4) for v in y], variant=variant))
            title = f"{column.label}: {label} after each task"
            plots.append(Plot(f"czsl-{score}-{number}", "lines", title, "task", label, series))
    return Artifact(
        "czsl-curves",
        "Continual zero-shot learning, task by task",
        "Class normalization improves the curves of all methods, at some steps beyond the plain multi-task model.",
        plots=plots,
        notes=[*_NOTES, *(column.missing for column in workshop.columns if column.missing)],
    )
