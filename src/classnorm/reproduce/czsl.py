"""The paper's continual table and curves, with tuned and with published settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from classnorm.continual import TaskStream, configure, read_image_split
from classnorm.data import ZeroShotDataset
from classnorm.experiments.streams import ContinualExperiment
from classnorm.experiments.validation_sequence import VALIDATION_TASKS, Chosen, Selection, validated
from classnorm.report.stream_results import task_curve
from classnorm.report.summary import STREAM_SCORES, score_digits
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.published import published_table
from classnorm.reproduce.reproduction import Reproduction, SeedRuns
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.numbers import mean_text, number_text, signed
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
    """None if it does not apply."""
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
"""The paper's five methods, two more baselines, and our analytic strategy."""

_SELECTION_STRATEGY = "sequential"  # the strategy on which selection scores are compared

Runs = dict[tuple[str, Protocol], SeedRuns]
"""(arm, protocol) → its runs."""
Choices = dict[str, list[Chosen]]
"""Arm → the choice of each seed's validation sequence."""


def _stream_data(reproduction: Reproduction, benchmark: Benchmark) -> ZeroShotDataset:
    dataset = benchmark.dataset
    if reproduction.image_split is None or benchmark.name != "CUB":
        return dataset
    return replace(dataset, is_train=read_image_split(reproduction.image_split, dataset.image_files))


def _experiments(reproduction: Reproduction, dataset: ZeroShotDataset, arm: Arm) -> list[ContinualExperiment]:
    """One per seed, with the published settings."""
    experiments = []
    for seed in range(reproduction.effort.seeds):
        changes: dict[str, Any] = {}
        if arm.class_norm is not None:
            changes = {"class_norm": arm.class_norm, "epochs": reproduction.effort.stream_epochs}
        config = configure(TaskStream.make(dataset, None, seed), arm.strategy, **changes)
        experiments.append(ContinualExperiment(dataset, arm.strategy, config, seed, part=(VALIDATION_TASKS, None)))
    return experiments


def _run(reproduction: Reproduction, benchmark: Benchmark) -> tuple[Runs, Choices]:
    """Run every arm under both protocols, on the tasks after the validation sequence."""
    dataset = _stream_data(reproduction, benchmark)
    experiments = {arm.label: _experiments(reproduction, dataset, arm) for arm in ARMS}
    progress = reproduction.announce(f"{benchmark.name}: validation sequences")
    flat = [experiment for group in experiments.values() for experiment in group]
    tuned = iter(validated(flat, reproduction.runs, reproduction.engine, progress=progress))
    choices = {label: [next(tuned) for _ in group] for label, group in experiments.items()}
    groups: dict[tuple[str, Protocol], list[ContinualExperiment]] = {}
    for label, group in experiments.items():
        groups[label, "published"] = group
        groups[label, "tuned"] = [choice.experiment for choice in choices[label]]
    return reproduction.run(f"{benchmark.name}: streams", groups), choices


_CONCLUSION = (
    "Class normalization improves every continual method, mH by 30 to 50 %, and reduces forgetting (except where there "
    "is little to forget)."
)
_PROTOCOLS: dict[Protocol, str] = {
    "tuned": "settings chosen by each arm's validation sequence (the first 3 tasks, by mAUC)",
    "published": "the published learning rate of 1e-3, no selection",
}
_NOTE = (
    "Frozen features; 2-layer embedder with 256 units, γ = 5, SGD, batches of 32. The first 3 tasks serve model "
    "selection only; a fresh model learns the remaining tasks, in the label space of their classes, and only these "
    "are reported. Accuracies are averaged over classes. In parentheses: the change due to CN, relative to the arm "
    "without it. “mH with bias” subtracts from the seen scores the bias with the best mH on the validation sequence; "
    "the analytic strategy always does."
)


def czsl_table(reproduction: Reproduction) -> Artifact:
    tables, verdicts, notes, data = [], [], [_NOTE], {}
    for benchmark in reproduction.available:
        runs, choices = _run(reproduction, benchmark)
        for protocol in _PROTOCOLS:
            tables.append(_table(benchmark, protocol, runs, choices))
            verdicts += _verdicts(benchmark, protocol, runs)
        tables.append(_selection_table(reproduction, benchmark))
        notes += _edge_notes(benchmark, choices)
        data[benchmark.label] = {
            " | ".join(key): [result.document["scores"] for result in group.finished] for key, group in runs.items()
        }
    tables.append(published_table("czsl-table", "The paper's figures (ResNet-18, trained jointly)"))
    return Artifact(
        "czsl-table",
        "Continual zero-shot learning",
        _CONCLUSION,
        tables=tables,
        verdicts=verdicts,
        notes=[*notes, *reproduction.missing],
        data=data,
    )


def _table(benchmark: Benchmark, protocol: Protocol, runs: Runs, choices: Choices) -> Table:
    header, body = ["method", *STREAM_SCORES], []
    for arm in ARMS:
        group = runs[arm.label, protocol]
        cells = _cells(group)
        if arm.class_norm:
            plain = runs[arm.model, protocol]
            cells = [cell + _change(group, plain, score) for cell, score in zip(cells, STREAM_SCORES, strict=True)]
        if protocol == "tuned":
            cells += [_biased(group, choices[arm.label]), "; ".join(map(str, choices[arm.label]))]
        body.append([arm.label, *cells])
    if protocol == "tuned":
        header += ["mH with bias", "chosen for each seed"]
    split = runs[ARMS[0].label, protocol].finished[0].document["stream"]["image_split"]
    return Table.of(f"{benchmark.label}, {split} image split: {_PROTOCOLS[protocol]}", header, body)


def _selection_table(reproduction: Reproduction, benchmark: Benchmark) -> Table:
    """Choices by each selection score from the same trials, and their scores on the remaining tasks."""
    dataset, body = _stream_data(reproduction, benchmark), []
    for arm in (arm for arm in ARMS if arm.strategy == _SELECTION_STRATEGY):
        experiments = _experiments(reproduction, dataset, arm)
        for score in get_args(Selection):
            stage = f"{benchmark.name}: {arm.label} by {score}"
            progress = reproduction.announce(stage)
            chosen = validated(experiments, reproduction.runs, reproduction.engine, score=score, progress=progress)
            [runs] = reproduction.run(stage, {score: [choice.experiment for choice in chosen]}).values()
            body.append([arm.label, score, *_cells(runs), "; ".join(map(str, chosen))])
    title = f"{benchmark.label}: selection score of the validation sequence"
    return Table.of(title, ["method", "chosen by", *STREAM_SCORES, "chosen for each seed"], body)


def _edge_notes(benchmark: Benchmark, choices: Choices) -> list[str]:
    """Choices at an edge of the grid: a wider grid may contain a better one."""
    edges = [
        f"{label} ({', '.join(f'{name} {choice.settings[name]:g}' for name in choice.edges)}, seed {seed})"
        for label, group in choices.items()
        for seed, choice in enumerate(group)
        if choice.edges
    ]
    return [f"{benchmark.label}: chosen at an edge of the grid: {', '.join(edges)}."] if edges else []


def _cells(runs: SeedRuns) -> list[str]:
    return [runs.cell(score, score_digits(score)) for score in STREAM_SCORES]


def _change(runs: SeedRuns, plain: SeedRuns, score: str) -> str:
    """The change relative to the arm without CN; empty if the score of that arm is close to 0."""
    base = plain.mean(score)
    return f" ({signed(100 * (runs.mean(score) - base) / abs(base), 0)} %)" if abs(base) > 0.005 else ""


def _biased(runs: SeedRuns, chosen: Sequence[Chosen]) -> str:
    """mH with the bias of the seen scores that is best on the validation sequence."""
    curves = [result.document["bias_curve"] for result in runs.finished]
    pairs = zip(curves, chosen, strict=True)
    return mean_text([curve["harmonic"][curve["value"].index(choice.best_bias)] for curve, choice in pairs])


def _verdicts(benchmark: Benchmark, protocol: Protocol, runs: Runs) -> list[Verdict]:
    verdicts = []
    for arm in (arm for arm in ARMS if arm.class_norm and arm.published):
        cn, plain = runs[arm.label, protocol], runs[arm.model, protocol]
        before, after = plain.mean("mH"), cn.mean("mH")
        verdicts.append(
            Verdict(
                f"{protocol}: CN lifts {arm.model}'s mH (by {100 * _LIFT:.0f} %)",
                benchmark.label,
                f"{number_text(before)} → {number_text(after)}{_change(cn, plain, 'mH')}",
                judge_difference(cn.values("mH"), plain.values("mH"), _LIFT * before),
            )
        )
        before, after = plain.mean("forgetting"), cn.mean("forgetting")
        verdicts.append(
            Verdict(
                f"{protocol}: CN lowers {arm.model}'s forgetting",
                benchmark.label,
                f"{number_text(before, 2)} → {number_text(after, 2)}",
                judge_difference(plain.values("forgetting"), cn.values("forgetting"), 0.0),
            )
        )
    return verdicts


_CURVES = {
    "seen": "GZSL-S (%)",
    "unseen": "GZSL-U (%)",
    "harmonic": "GZSL-H (%)",
    "ausuc": "AUSUC (%)",
    "joint": "joint accuracy (%)",
    "forgetting": "forgetting",
}


def czsl_curves(reproduction: Reproduction) -> Artifact:
    plots = []
    for number, benchmark in enumerate(reproduction.available):
        runs, _ = _run(reproduction, benchmark)
        for score, label in _CURVES.items():
            series = [
                task_curve(arm.label, arm.model, runs[arm.label, "tuned"].finished, score, _variant(arm))
                for arm in ARMS
            ]
            title = f"{benchmark.label}: {label} after each task"
            plots.append(Plot(f"czsl-{score}-{number}", "lines", title, "task", label, series))
    return Artifact(
        "czsl-curves",
        "Continual zero-shot learning, task by task",
        "Class normalization improves the curves of all methods, at some steps beyond the plain multi-task model.",
        plots=plots,
        notes=[_NOTE, *reproduction.missing],
    )


def _variant(arm: Arm) -> str:
    return "+ CN" if arm.class_norm else "plain"
