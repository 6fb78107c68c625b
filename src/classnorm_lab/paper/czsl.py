"""The paper's continual table and curves, with settings chosen from its grid, from a wider one, and fixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from classnorm import progress
from classnorm.continual import TaskStream, configure, read_image_split
from classnorm.data import ZeroShotDataset
from classnorm.report.stream_results import task_curve
from classnorm.report.summary import STREAM_SCORES, score_digits
from classnorm.results.artifact import Plot, Series, Table
from classnorm.results.numbers import json_number, number_text, signed
from classnorm.results.run_folder import Result
from classnorm.runs.streams import ContinualExperiment, ImageMode
from classnorm.runs.validation_sequence import (
    VALIDATION_TASKS,
    Chosen,
    Selection,
    default_grid,
    paper_grid,
    validated,
)
from classnorm_lab.diagnoses.diagnosis import BLUE, GREEN, ORANGE, PINK, RED, SKY
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.measured import SeedRuns, Setting
from classnorm_lab.paper.published import published_table
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding, PairedDifference, Verdict, judge_difference

Protocol = Literal["paper", "wider", "fixed"]
PROTOCOLS: dict[Protocol, str] = {
    "paper": "the paper's grid",
    "wider": "our wider grid",
    "fixed": "learning rate 1e-3, nothing chosen",
}
_LIFT = 0.3  # the paper: CN lifts mH by 30 to 50 %


@dataclass(frozen=True)
class Arm:
    """A strategy with or without class normalization."""

    label: str
    strategy: str
    class_norm: bool | None
    """None if it does not apply."""
    published: str = ""
    """Label in the paper; empty if the paper does not have it, which then shows it with the wider grid only."""

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
ARM_COLORS = {
    "EWC-online": BLUE,
    "MAS-online": ORANGE,
    "A-GEM": GREEN,
    "Sequential": PINK,
    "Multi-task": "#262626",
    "Replay": SKY,
    "LwF": RED,
}

_SELECTION_STRATEGY = "sequential"  # the strategy on which selection scores are compared
_CONCLUSION = (
    "Class normalization improves every continual method, mH by 30 to 50 %, and reduces forgetting (except where there "
    "is little to forget)."
)
_NOTES = (
    "Frozen features; 2-layer embedder with 256 units, γ = 5, SGD, batches of 32. The first 3 tasks serve model "
    "selection only, by mAUC, for each arm and seed; a fresh model learns the remaining tasks, in the label space of "
    "their classes, and only these are reported. Accuracies are averaged over classes. In parentheses: the change due "
    "to CN, relative to the arm without it. “mH with bias” subtracts from the seen scores the bias with the best mH on "
    "the validation sequence; the analytic strategy always does.",
    "The paper's grid: uniform or normal initial weights, gradients clipped at 10 or 100, learning rate 1e-3 or 5e-3, "
    "momentum 0.9 or 0.95, and the penalties of EWC and MAS, of which the paper lists none, so ours. The wider grid: "
    "learning rates from 1e-4 to 1, then √10 to either side of the best, and the penalties.",
    "EWC and MAS estimate the importance of a weight from gradients that are averaged over 8 rows each, not row by "
    "row. With an encoder, its BatchNorm layers are frozen; there is none here.",
)


def _arms(protocol: Protocol) -> list[Arm]:
    return [arm for arm in ARMS if arm.published or protocol == "wider"]


@dataclass(frozen=True)
class Streams:
    """The runs of an arm, one per seed, and the choices of their validation sequences, if any."""

    results: list[Result]
    chosen: list[Chosen]

    def numbers(self) -> dict[str, list[float | None]]:
        numbers = {name: [r.document["scores"][name] for r in self.results] for name in STREAM_SCORES}
        if self.chosen:
            numbers["mH with bias"] = [_biased(r, c) for r, c in zip(self.results, self.chosen, strict=True)]
        return numbers


def _biased(result: Result, choice: Chosen) -> float | None:
    """mH with the bias of the seen scores that is best on the validation sequence."""
    curve = result.document["bias_curve"]
    return json_number(curve["harmonic"][curve["value"].index(choice.best_bias)])


def stream_data(reproduction: Reproduction, paper_dataset: PaperDataset) -> ZeroShotDataset:
    dataset = paper_dataset.dataset
    if reproduction.image_split is None or paper_dataset.name != "CUB":
        return dataset
    return replace(dataset, is_train=read_image_split(reproduction.image_split, dataset.image_files))


def arm_experiments(
    reproduction: Reproduction, dataset: ZeroShotDataset, arm: Arm, images: ImageMode | None = None, **settings: Any
) -> list[ContinualExperiment]:
    """One per seed, with the published settings and further ones, before any are chosen."""
    if arm.class_norm is not None:
        settings |= {"class_norm": arm.class_norm, "epochs": reproduction.effort.stream_epochs}
    experiments = []
    for seed in range(reproduction.effort.seeds):
        config = configure(TaskStream.make(dataset, None, seed), arm.strategy, **settings)
        part = (VALIDATION_TASKS, None)
        experiments.append(ContinualExperiment(dataset, arm.strategy, config, seed, part=part, images=images))
    return experiments


def _run(
    reproduction: Reproduction, paper_dataset: PaperDataset, arm: Arm, protocol: Protocol, score: Selection = "mAUC"
) -> Streams:
    """Run an arm on the tasks after the validation sequence, which chooses its settings unless they are fixed."""
    experiments = arm_experiments(reproduction, stream_data(reproduction, paper_dataset), arm)
    stage = f"{paper_dataset.name}, {arm.label}: {PROTOCOLS[protocol]}"
    chosen: list[Chosen] = []
    if protocol != "fixed":
        grid = paper_grid(arm.strategy) if protocol == "paper" else default_grid(arm.strategy)
        with progress.stage(stage):
            chosen = validated(experiments, reproduction.runs, reproduction.engine, score=score, grid=grid)
        experiments = [choice.experiment for choice in chosen]
    results = reproduction.run(stage, {arm.label: experiments})[arm.label]
    return Streams([result for result in results if result is not None], chosen)


def measure_czsl_table(reproduction: Reproduction) -> dict[str, Any]:
    runs, selection, splits = [], [], {}
    for paper_dataset in reproduction.available:
        for protocol in PROTOCOLS:
            for arm in _arms(protocol):
                streams = _run(reproduction, paper_dataset, arm, protocol)
                where = {"setting": paper_dataset.name, "protocol": protocol, "arm": arm.label}
                runs.append(where | _document(streams))
                splits[paper_dataset.name] = streams.results[0].document["stream"]["image_split"]
        for arm in (arm for arm in ARMS if arm.strategy == _SELECTION_STRATEGY):
            for score in get_args(Selection):
                streams = _run(reproduction, paper_dataset, arm, "wider", score)
                where = {"setting": paper_dataset.name, "score": score, "arm": arm.label}
                selection.append(where | _document(streams))
    settings = [asdict(paper_dataset.setting) for paper_dataset in reproduction.datasets]
    return {"settings": settings, "splits": splits, "runs": runs, "selection": selection}


def _document(streams: Streams) -> dict[str, Any]:
    edges = [
        f"{', '.join(f'{name} {choice.settings[name]:g}' for name in choice.edges)}, seed {seed}"
        for seed, choice in enumerate(streams.chosen)
        if choice.edges
    ]
    return {"numbers": streams.numbers(), "chosen": [str(choice) for choice in streams.chosen], "edges": edges}


Runs = dict[str, SeedRuns]
"""Arm → its runs."""


def _runs(numbers: Mapping[str, Any], setting: Setting, protocol: Protocol) -> dict[str, Mapping[str, Any]]:
    """Arm → document."""
    return {d["arm"]: d for d in numbers["runs"] if (d["setting"], d["protocol"]) == (setting.name, protocol)}


def czsl_table(numbers: Mapping[str, Any]) -> Finding:
    settings = [Setting(**setting) for setting in numbers["settings"]]
    tables, verdicts, notes = [], [], list(_NOTES)
    for setting in (setting for setting in settings if not setting.missing):
        for protocol in PROTOCOLS:
            documents = _runs(numbers, setting, protocol)
            tables.append(_table(setting, protocol, documents, numbers["splits"][setting.name]))
            verdicts += pair_verdicts(setting, PROTOCOLS[protocol], documents)
            notes += _edge_notes(setting, protocol, documents)
        tables.append(_selection_table(setting, numbers["selection"]))
    tables.append(published_table("czsl-table", "The paper's figures (ResNet-18, trained jointly)"))
    return Finding(
        "czsl-table",
        "Continual zero-shot learning",
        _CONCLUSION,
        tables=tables,
        verdicts=verdicts,
        notes=[*notes, *(setting.missing for setting in settings if setting.missing)],
        data=dict(numbers),
    )


def _table(setting: Setting, protocol: Protocol, documents: Mapping[str, Mapping[str, Any]], split: str) -> Table:
    groups, body = {label: SeedRuns(document["numbers"]) for label, document in documents.items()}, []
    for label, group in groups.items():
        cells = score_cells(group)
        plain = groups.get(label.removesuffix(" + CN"), group)
        if plain is not group:
            cells = [cell + score_change(group, plain, score) for cell, score in zip(cells, STREAM_SCORES, strict=True)]
        if protocol != "fixed":
            cells += [group.cell("mH with bias"), "; ".join(documents[label]["chosen"])]
        body.append([label, *cells])
    header = ["method", *STREAM_SCORES, *(["mH with bias", "chosen for each seed"] * (protocol != "fixed"))]
    return Table.of(f"{setting.label}, {split} image split: {PROTOCOLS[protocol]}", header, body)


def _selection_table(setting: Setting, selection: Sequence[Mapping[str, Any]]) -> Table:
    """Choices by each selection score from the same trials, and their scores on the remaining tasks."""
    body = [
        [d["arm"], d["score"], *score_cells(SeedRuns(d["numbers"])), "; ".join(d["chosen"])]
        for d in selection
        if d["setting"] == setting.name
    ]
    title = f"{setting.label}: selection score of the validation sequence, {PROTOCOLS['wider']}"
    return Table.of(title, ["method", "chosen by", *STREAM_SCORES, "chosen for each seed"], body)


def _edge_notes(setting: Setting, protocol: Protocol, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Choices at an edge of the grid: a wider grid may contain a better one."""
    edges = [f"{label} ({edge})" for label, document in documents.items() for edge in document["edges"]]
    return [f"{setting.label}: at an edge of {PROTOCOLS[protocol]}: {', '.join(edges)}."] if edges else []


def score_cells(runs: SeedRuns) -> list[str]:
    return [runs.cell(score, score_digits(score)) for score in STREAM_SCORES]


def score_change(runs: SeedRuns, plain: SeedRuns, score: str) -> str:
    """The change relative to the arm without CN; empty if the score of that arm is close to 0."""
    base = plain.mean(score)
    return f" ({signed(100 * (runs.mean(score) - base) / abs(base), 0)} %)" if abs(base) > 0.005 else ""


def pair_verdicts(setting: Setting, scoring: str, documents: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """What CN does to each method of the paper whose two arms are among the documents."""
    verdicts = []
    for arm in (arm for arm in ARMS if arm.class_norm and arm.published):
        if arm.label not in documents or arm.model not in documents:
            continue
        cn, plain = (SeedRuns(documents[label]["numbers"]) for label in (arm.label, arm.model))
        before, after = plain.mean("mH"), cn.mean("mH")
        lift = PairedDifference.of(cn.values("mH"), plain.values("mH"))
        verdicts.append(
            Verdict(
                f"CN lifts {arm.model}'s mH (by {100 * _LIFT:.0f} %)",
                setting.label,
                f"{number_text(before)} → {number_text(after)}{score_change(cn, plain, 'mH')}: {lift.text()}",
                judge_difference(cn.values("mH"), plain.values("mH"), _LIFT * before, digits=1),
                scoring,
                json_number(lift.mean),
            )
        )
        before, after = plain.mean("forgetting"), cn.mean("forgetting")
        drop = PairedDifference.of(plain.values("forgetting"), cn.values("forgetting"))
        verdicts.append(
            Verdict(
                f"CN lowers {arm.model}'s forgetting",
                setting.label,
                f"{number_text(before, 2)} → {number_text(after, 2)}: lower by {drop.text(2)}",
                judge_difference(plain.values("forgetting"), cn.values("forgetting"), 0.0),
                scoring,
            )
        )
    return verdicts


CURVES = {
    "seen": "GZSL-S (%)",
    "unseen": "GZSL-U (%)",
    "harmonic": "GZSL-H (%)",
    "ausuc": "AUSUC (%)",
    "joint": "joint accuracy (%)",
    "forgetting": "forgetting",
}


def measure_czsl_curves(reproduction: Reproduction) -> dict[str, Any]:
    curves = []
    for paper_dataset in reproduction.available:
        for arm in ARMS:
            results = _run(reproduction, paper_dataset, arm, "wider").results
            for score in CURVES:
                curve = task_curve(arm.label, arm.model, results, score)
                where = {"setting": paper_dataset.name, "arm": arm.label, "score": score}
                curves.append(where | {"x": curve.x, "y": [json_number(y) for y in curve.y]})
    return {"settings": [asdict(paper_dataset.setting) for paper_dataset in reproduction.datasets], "curves": curves}


def czsl_curves(numbers: Mapping[str, Any]) -> Finding:
    settings = [Setting(**setting) for setting in numbers["settings"]]
    plots = [
        Plot(
            f"czsl-{score}-{number}",
            "lines",
            f"{setting.label}: {label} after each task",
            "task",
            label,
            list(curve_series(numbers["curves"], setting, score)),
            colors=ARM_COLORS,
        )
        for number, setting in enumerate(setting for setting in settings if not setting.missing)
        for score, label in CURVES.items()
    ]
    return Finding(
        "czsl-curves",
        "Continual zero-shot learning, task by task",
        "Class normalization improves the curves of all methods, at some steps beyond the plain multi-task model.",
        plots=plots,
        notes=[
            f"Settings chosen from {PROTOCOLS['wider']}; mean over seeds.",
            *_NOTES,
            *(setting.missing for setting in settings if setting.missing),
        ],
        data=dict(numbers),
    )


def curve_series(curves: Sequence[Mapping[str, Any]], setting: Setting, score: str) -> Iterator[Series]:
    arms = {curve["arm"] for curve in curves}
    for curve in curves:
        if (curve["setting"], curve["score"]) == (setting.name, score):
            arm = curve["arm"]
            variant = "without CN" if f"{arm} + CN" in arms else ""
            yield Series(arm, arm.removesuffix(" + CN"), curve["x"], curve["y"], variant=variant)
