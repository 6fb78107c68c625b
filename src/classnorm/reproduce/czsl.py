"""The paper's continual part: its table and its curves, with settings by the validation sequence and as published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from classnorm.continual import TaskStream, configure, read_image_split
from classnorm.data import ZeroShotDataset
from classnorm.errors import TrainingError
from classnorm.experiments.streams import ContinualExperiment
from classnorm.experiments.validation_sequence import VALIDATION_TASKS, Chosen, Selection, validated
from classnorm.report.streams import task_curve
from classnorm.report.summary import STREAM_SCORES
from classnorm.reproduce.benchmarks import Column
from classnorm.reproduce.published import published, published_columns
from classnorm.reproduce.reproduction import Workshop
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.numbers import mean_text
from classnorm.results.run_folder import Result
from classnorm.results.verdicts import Verdict, judge_difference

__all__ = ["ARMS", "Arm", "czsl_curves", "czsl_table"]

Protocol = Literal["tuned", "published"]
_LIFT = 0.3  # the paper: CN lifts mH by 30 to 50 %


@dataclass(frozen=True)
class Arm:
    """A strategy with or without class normalization."""

    label: str
    strategy: str
    class_norm: bool | None
    """None where it does not apply."""
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
    Arm("Analytic (ours)", "analytic", None),
)
"""The paper's five methods, two more that users compare with, and our own."""

_COMPARED = "sequential"  # the strategy on which the selection scores are compared

Runs = dict[tuple[str, Protocol], list[Result]]
"""(arm, protocol) → a result per seed."""
Choices = dict[str, list[Chosen]]
"""Arm → what the validation sequence of each seed chose."""


def _stream_data(workshop: Workshop, column: Column) -> ZeroShotDataset:
    if workshop.image_split is None or column.name != "CUB":
        return column.dataset
    return replace(column.dataset, is_train=read_image_split(workshop.image_split, column.dataset.image_files))


def _experiments(workshop: Workshop, dataset: ZeroShotDataset, arm: Arm) -> list[ContinualExperiment]:
    """One per seed, with the published settings."""
    found = []
    for seed in range(workshop.effort.seeds):
        changes: dict[str, Any] = {}
        if arm.class_norm is not None:
            changes = {"class_norm": arm.class_norm, "epochs": workshop.effort.stream_epochs}
        config = configure(TaskStream.make(dataset, None, seed), arm.strategy, **changes)
        found.append(ContinualExperiment(dataset, arm.strategy, config, seed, part=(VALIDATION_TASKS, None)))
    return found


def _run(workshop: Workshop, column: Column) -> tuple[Runs, Choices]:
    """Every arm under both protocols, on the tasks that no validation has used."""
    dataset = _stream_data(workshop, column)
    experiments = {arm.label: _experiments(workshop, dataset, arm) for arm in ARMS}
    flat = [experiment for group in experiments.values() for experiment in group]
    with workshop.progress(f"{column.name}: validation sequences") as progress:
        tuned = iter(validated(flat, workshop.folder / "runs", workshop.engine, progress=progress))
    choices = {label: [next(tuned) for _ in group] for label, group in experiments.items()}
    chosen = {label: [choice.experiment for choice in group] for label, group in choices.items()}
    finished = _finished(workshop, column, [*flat, *(experiment for group in chosen.values() for experiment in group)])
    runs: Runs = {}
    for label in experiments:
        runs[label, "published"] = [finished[experiment.name] for experiment in experiments[label]]
        runs[label, "tuned"] = [finished[experiment.name] for experiment in chosen[label]]
    return runs, choices


def _finished(workshop: Workshop, column: Column, experiments: Sequence[ContinualExperiment]) -> dict[str, Result]:
    """The result of each, by name."""
    failed = workshop.run(f"{column.name}: streams", experiments)
    if failed:
        raise TrainingError(f"{column.name}: {next(iter(failed.values()))}")
    return {experiment.name: Result.read(workshop.folder / "runs" / experiment.name) for experiment in experiments}


def _values(runs: Sequence[Result], score: str) -> list[float]:
    return [run.scores[score] for run in runs]


_SAYS = (
    "Class normalization improves every continual method, mH by 30 to 50 %, and makes them forget less (except where "
    "there is little to forget)."
)
_PROTOCOLS: dict[Protocol, str] = {
    "tuned": "settings chosen by each arm's own validation sequence (the first 3 tasks, by mAUC)",
    "published": "the published learning rate 1e-3, nothing chosen",
}


def czsl_table(workshop: Workshop) -> Artifact:
    tables, verdicts, notes, data = [], [], list(_NOTES), {}
    for column in workshop.at_hand:
        runs, choices = _run(workshop, column)
        for protocol, words in _PROTOCOLS.items():
            tables.append(_table(column, protocol, words, runs, choices if protocol == "tuned" else None))
            verdicts += _verdicts(column, protocol, runs)
        tables.append(_selection_table(workshop, column))
        notes += _edge_notes(column, choices)
        data[column.label] = {" | ".join(key): [run.document["scores"] for run in group] for key, group in runs.items()}
    columns = published_columns("czsl-table")
    theirs = [[row.label, *(row.cells[c] for c in columns)] for row in published("czsl-table").values()]
    tables.append(Table.of("The paper's figures (ResNet-18 trained along)", ["published", *columns], theirs))
    return Artifact(
        "czsl-table",
        "Continual zero-shot learning",
        _SAYS,
        tables=tables,
        verdicts=verdicts,
        notes=[*notes, *(column.missing for column in workshop.columns if column.missing)],
        data=data,
    )


def _selection_table(workshop: Workshop, column: Column) -> Table:
    """What each selection score picks from the same trials, and what that gives on the tasks that are left."""
    dataset, body = _stream_data(workshop, column), []
    for arm in (arm for arm in ARMS if arm.strategy == _COMPARED):
        experiments = _experiments(workshop, dataset, arm)
        for score in get_args(Selection):
            with workshop.progress(f"{column.name}: {arm.label} by {score}") as progress:
                root = workshop.folder / "runs"
                chosen = validated(experiments, root, workshop.engine, score=score, progress=progress)
            finished = _finished(workshop, column, [choice.experiment for choice in chosen])
            runs = [finished[choice.experiment.name] for choice in chosen]
            body.append([arm.label, score, *(_cell(runs, s) for s in STREAM_SCORES), "; ".join(map(str, chosen))])
    title = f"{column.label}: the score by which the validation sequence chooses"
    return Table.of(title, ["method", "chosen by", *STREAM_SCORES, "chosen, seed by seed"], body)


def _edge_notes(column: Column, choices: Choices) -> list[str]:
    """Choices at an edge of what was tried: a wider grid might have found better."""
    found = [
        f"{label} ({', '.join(f'{name} {choice.settings[name]:g}' for name in choice.edges)}, seed {number})"
        for label, group in choices.items()
        for number, choice in enumerate(group)
        if choice.edges
    ]
    return [f"{column.label}: chosen at an edge of the grid: {', '.join(found)}."] if found else []


_NOTES = (
    "Frozen features; 2-layer embedder with 256 units, γ = 5, SGD, batches of 32. The first 3 tasks only choose, "
    "the others are learnt by a fresh model and reported, in the label space of their own classes. Accuracies are "
    "averaged over classes. In brackets: change by CN, relative to the arm without it. “mH with bias” subtracts from "
    "the seen scores the bias that is best by mH on the validation sequence; the analytic strategy has it throughout.",
)


def _table(column: Column, protocol: Protocol, words: str, runs: Runs, choices: Choices | None) -> Table:
    body = []
    for arm in ARMS:
        group = runs[arm.label, protocol]
        cells = [arm.label, *(_cell(group, score) for score in STREAM_SCORES)]
        if arm.class_norm:
            plain = runs[arm.model, protocol]
            cells[1:] = [cell + _change(group, plain, s) for cell, s in zip(cells[1:], STREAM_SCORES, strict=True)]
        if choices is not None:
            cells += [_biased(group, choices[arm.label]), "; ".join(map(str, choices[arm.label]))]
        body.append(cells)
    split = runs[ARMS[0].label, protocol][0].document["stream"]["image_split"]
    more = ["mH with bias", "chosen, seed by seed"] if choices is not None else []
    return Table.of(f"{column.label}, {split} image split: {words}", ["method", *STREAM_SCORES, *more], body)


def _cell(runs: Sequence[Result], score: str) -> str:
    return mean_text(_values(runs, score), 2 if score == "forgetting" else 1)


def _change(runs: Sequence[Result], plain: Sequence[Result], score: str) -> str:
    """Relative to the arm without CN; nothing where that is next to 0."""
    mean, base = float(np.mean(_values(runs, score))), float(np.mean(_values(plain, score)))
    return f" ({100 * (mean - base) / abs(base):+.0f} %)".replace("-", "−") if abs(base) > 0.005 else ""


def _biased(runs: Sequence[Result], chosen: Sequence[Chosen]) -> str:
    """mH with the bias of the seen scores that is best on the validation sequence."""
    curves = [run.document["bias_curve"] for run in runs]
    pairs = zip(curves, chosen, strict=True)
    return mean_text([c["harmonic"][c["value"].index(choice.best_bias)] for c, choice in pairs], 1)


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
        runs, _ = _run(workshop, column)
        for score, label in _CURVES.items():
            series = [
                task_curve(
                    arm.label, arm.model, runs[arm.label, "tuned"], score, variant="+ CN" if arm.class_norm else "plain"
                )
                for arm in ARMS
            ]
            title = f"{column.label}: {label} after each task"
            plots.append(Plot(f"czsl-{score}-{number}", "lines", title, "task", label, series))
    return Artifact(
        "czsl-curves",
        "Continual zero-shot learning, task by task",
        "Class normalization improves the curves of all methods, at some steps beyond the plain multi-task model.",
        plots=plots,
        notes=[*_NOTES, *(column.missing for column in workshop.columns if column.missing)],
    )
