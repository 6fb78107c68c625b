"""The tables of training times and hyperparameters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.io.documents import read_json
from classnorm.io.files import digest, write_json
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.progress import stage
from classnorm.results.artifact import Table
from classnorm.results.numbers import mean, number_text
from classnorm.runs.engine import Engine, run_tasks
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.measured import Setting
from classnorm_lab.paper.published import PAPER_DATASETS, published, published_table
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.variants import RIVALS
from classnorm_lab.paper.verdicts import Finding, Verdict, judge_bounds


@dataclass(frozen=True)
class Timed:
    """A model whose training is timed: some epochs of it, for a schedule of many."""

    label: str
    method: str
    recipe: str
    epochs: int | None = None
    """Epochs to run; None is all."""
    stride: int = 1
    """Every which row an epoch has, if a whole one takes long."""


_SCHEDULE = ", published schedule"
_EPOCHS = {"relationnet": (2, 1), "cvc": (4, 1)}  # to run, and every which row; one epoch of some rows for others
TIMED = (
    Timed("3-layer MLP + CN", "classnorm", "reference"),
    *(Timed(name + _SCHEDULE, method, "paper", *_EPOCHS.get(method, (1, 8))) for name, method in RIVALS.items()),
)
_CN = TIMED[0].label
_UNTIMED = {"classifier_epochs", "synthesized"}  # of the classifier that generative methods train after their epochs


@dataclass(frozen=True)
class Stopwatch:
    """A task that trains all models one after another, several times over."""

    dataset: ZeroShotDataset
    changes: Mapping[str, Any]
    """Changed settings of the MLP."""
    repeats: int
    marker = "times.json"

    @cached_property
    def name(self) -> str:
        timed = [asdict(timed) for timed in TIMED]
        return f"times-{digest([self.dataset.checksum, dict(self.changes), self.repeats, timed])[:16]}"

    def run(self, folder: Path) -> None:
        write_json(
            folder / self.marker, {"machine": _machine(), "times": [self._round(n) for n in range(self.repeats)]}
        )

    def _round(self, seed: int) -> dict[str, Any]:
        return {timed.label: self._time(timed, seed) for timed in TIMED}

    def _time(self, timed: Timed, seed: int) -> dict[str, float]:
        """Seconds of an epoch, its number of epochs, and how many were run."""
        method, config = resolve(self.dataset, timed.method, timed.recipe)
        if timed.method == "classnorm":
            config = config.replace(**self.changes)
        epochs: int = config.as_dict()["epochs"]
        run = min(epochs, timed.epochs or epochs)
        untimed = dict.fromkeys(_UNTIMED & config.as_dict().keys(), 1)
        dataset = _thinned(self.dataset, timed.stride)
        share = len(dataset.split.train) / len(self.dataset.split.train)
        history = FitJob(dataset, method, config.replace(epochs=run, **untimed), seed).fit(_context()).history
        seconds = mean([epoch["seconds"] for epoch in history]) / share
        return {"epochs": epochs, "run": round(run * share, 2), "seconds_per_epoch": seconds}


def _thinned(dataset: ZeroShotDataset, stride: int) -> ZeroShotDataset:
    """The dataset with every `stride`-th of its training rows, in the order of their classes."""
    train = dataset.split.train
    kept = train[np.argsort(dataset.labels[train], kind="stable")][::stride]
    return replace(dataset, split=replace(dataset.split, train=np.sort(kept))) if stride > 1 else dataset


def _context() -> FitContext:
    import torch

    return FitContext(torch.device("cpu"))


def _machine() -> str:
    import torch

    return f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"


def measure_training_time(reproduction: Reproduction) -> dict[str, Any]:
    """Time all models on every available dataset, one after another in one process."""
    tasks = {
        paper_dataset.name: Stopwatch(
            paper_dataset.dataset,
            reproduction.changes(paper_dataset, "classnorm", "reference"),
            reproduction.effort.seeds,
        )
        for paper_dataset in reproduction.available
    }
    with stage("training-time"):
        run_tasks(list(tasks.values()), reproduction.runs, Engine(jobs=1))
    return {
        "settings": [asdict(paper_dataset.setting) for paper_dataset in reproduction.datasets],
        "times": {
            name: read_json(reproduction.runs / task.name / task.marker, dict[str, Any], "delete it")
            for name, task in tasks.items()
        },
    }


def training_time(data: Mapping[str, Any]) -> Finding:
    """Seconds of a whole training, measured or extrapolated here and as published."""
    settings = [Setting(**setting) for setting in data["settings"]]
    tables, verdicts = [], []
    for setting in settings:
        if not setting.missing:
            tables.append(_times_table(setting, data["times"][setting.name]))
            verdicts += _time_verdicts(setting, data["times"][setting.name])
    paper = "As published: one NVIDIA RTX 2080 Ti, ResNet-101 features; not measured here"
    return Finding(
        "training-time",
        "Training time",
        "The model trains in 20–30 seconds; other recent methods take from half an hour to several hours.",
        tables=[*tables, published_table("training-time", paper, "method")],
        verdicts=verdicts,
        notes=[
            "All models of a table were trained in one process, one after another, and this round was repeated. “of "
            "which run” is the number of epochs that were timed, some of them on a part of the rows; where it is less "
            "than the schedule, the time of the whole training is extrapolated: seconds per epoch × epochs of the "
            "schedule, without the classifier that generative methods train at the end.",
            *(setting.missing for setting in settings if setting.missing),
        ],
        data=dict(data),
    )


def _totals(times: Mapping[str, Any], label: str) -> list[float]:
    """Seconds of the whole schedule, one per round."""
    return [entry[label]["epochs"] * entry[label]["seconds_per_epoch"] for entry in times["times"]]


def _times_table(setting: Setting, times: Mapping[str, Any]) -> Table:
    first, rows = times["times"][0], []
    for label, entry in first.items():
        totals = _totals(times, label)
        kind = "measured" if entry["run"] == entry["epochs"] else "extrapolated"
        seconds = [number_text(value) for value in (mean(totals), min(totals), max(totals))]
        rows.append([label, str(entry["epochs"]), f"{entry['run']:g}", *seconds, kind])
    header = ["model", "epochs", "of which run", "seconds", "shortest", "longest", ""]
    title = f"{setting.label}: whole training, {len(times['times'])} rounds, {times['machine']}"
    return Table.of(title, header, rows)


def _factor(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def _time_verdicts(setting: Setting, times: Mapping[str, Any]) -> list[Verdict]:
    fast = _totals(times, _CN)
    n = f"n = {len(fast)}"
    verdicts = [
        Verdict(
            "The MLP with CN trains in about a minute (at most 60 s)",
            setting.label,
            f"{mean(fast):.1f} s ({min(fast):.1f} to {max(fast):.1f}), {n}",
            judge_bounds(fast, high=60.0),
        )
    ]
    for label in (label for label in times["times"][0] if label.endswith(_SCHEDULE)):
        ratios = [b / a for a, b in zip(fast, _totals(times, label), strict=True)]
        verdicts.append(
            Verdict(
                f"It trains at least 50 times faster than {label.removesuffix(_SCHEDULE)} with its published schedule",
                setting.label,
                "{} times ({} to {}), {}, extrapolated".format(
                    *map(_factor, (mean(ratios), min(ratios), max(ratios))), n
                ),
                judge_bounds(ratios, low=50.0),
            )
        )
    return verdicts


_FIELDS = {
    "Batch size": "batch_size",
    "Learning rate": "lr",
    "Epochs": "epochs",
    "Entropy weight": "entropy_weight",
    "Hidden dimension": "hidden",
    "γ": "gamma",
}
_RECIPES = ("paper", "literal", "reference")


def measure_hyperparameters(reproduction: Reproduction) -> dict[str, Any]:
    """The settings of the recipes on the available datasets."""
    return {
        "settings": [asdict(paper_dataset.setting) for paper_dataset in reproduction.available],
        "recipes": {
            paper_dataset.name: {recipe: _recipe(paper_dataset, recipe) for recipe in _RECIPES}
            for paper_dataset in reproduction.available
        },
    }


def _recipe(paper_dataset: PaperDataset, recipe: str) -> dict[str, float]:
    config = resolve(paper_dataset.dataset, "classnorm", recipe)[1].as_dict()
    return {"layers": config["layers"], **{field: config[field] for field in _FIELDS.values()}}


def hyperparameters(data: Mapping[str, Any]) -> Finding:
    """The paper's settings, and those of the recipes."""
    rows = [_recipe_row(name, recipe, c) for name, recipes in data["recipes"].items() for recipe, c in recipes.items()]
    settings = [Setting(**setting) for setting in data["settings"]]
    return Finding(
        "hyperparameters",
        "Hyperparameters",
        "The settings of the paper's runs.",
        tables=[
            published_table("hyperparameters", "In the paper", "setting"),
            Table.of("Recipes here", ["data, recipe", "Hidden layers", *_FIELDS], rows),
        ],
        verdicts=[_recipe_verdict(s, data["recipes"][s.name]["paper"]) for s in settings if s.paper in PAPER_DATASETS],
        notes=["The recipe “reference” is the authors' released run, which differs from the paper's table."],
        data=dict(data),
    )


def _recipe_row(name: str, recipe: str, config: Mapping[str, float]) -> Sequence[str]:
    return [f"{name}, {recipe}", f"{config['layers'] - 1:g}", *(f"{config[field]:g}" for field in _FIELDS.values())]


def _recipe_verdict(setting: Setting, config: Mapping[str, float]) -> Verdict:
    printed = {label: float(published("hyperparameters")[label].cells[setting.paper]) for label in _FIELDS}
    differing = [label for label, value in printed.items() if float(config[_FIELDS[label]]) != value]
    claim, measured = "The recipe “paper” has the paper's settings", ", ".join(differing) or "all equal"
    return Verdict(claim, setting.label, measured, "does not hold" if differing else "holds")
