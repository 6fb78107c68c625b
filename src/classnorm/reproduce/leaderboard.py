"""Every method on the same data under the same protocol: settings by validation, one calibration rule, test once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from classnorm.errors import TrainingError
from classnorm.experiments.experiment import Experiment
from classnorm.experiments.search import SearchConfig, search
from classnorm.files import write_json
from classnorm.methods import METHODS, method_named
from classnorm.reproduce.benchmarks import Column
from classnorm.reproduce.reproduction import Workshop
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, ranks
from classnorm.results.numbers import mean_text, signed
from classnorm.results.run_folder import Result
from classnorm.results.verdicts import Verdict, judge_bounds, judge_difference

__all__ = ["ENTRIES", "Entry", "leaderboard"]

_SPLITS = 2
_FEW = 3  # trials of the methods that take a minute or so a fit, the recipe first


@dataclass(frozen=True)
class Entry:
    """A method, or a version of it, that takes part."""

    label: str
    method: str
    recipe: str = "reference"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the search leaves alone."""
    trials: int = 8
    seeds: int | None = None
    """Fewer seeds than the others, for a method that takes long."""


ENTRIES = (
    Entry("3-layer MLP + CN", "classnorm", trials=_FEW),
    Entry("3-layer MLP", "classnorm", "baseline", trials=_FEW),
    Entry("3-layer MLP + CN, best", "classnorm", "best", trials=_FEW),
    Entry("RelationNet", "relationnet", fixed={"class_norm": False}, trials=_FEW),
    Entry("RelationNet + CN", "relationnet", "class-norm", {"class_norm": True}, trials=_FEW),
    Entry("CVC-ZSL", "cvc", fixed={"class_norm": False}, trials=_FEW),
    Entry("CVC-ZSL + CN", "cvc", "class-norm", {"class_norm": True}, trials=_FEW),
    Entry("DEM", "dem", trials=_FEW),
    Entry("DeViSE", "devise", trials=4),
    Entry("ALE", "ale", trials=4),
    Entry("SJE", "sje", trials=4),
    Entry("ConSE", "conse"),
    Entry("SYNC", "sync"),
    Entry("ESZSL", "eszsl"),
    Entry("SAE", "sae"),
    Entry("Kernel prototypes", "kernel"),
    Entry("f-CLSWGAN", "fclswgan", trials=1, seeds=1),
)


def leaderboard(workshop: Workshop) -> Artifact:
    """Search, train and score every method on every dataset at hand."""
    tables, plots, verdicts, data = [], [], [], {}
    for number, column in enumerate(workshop.at_hand):
        results = {entry.label: _entry(workshop, column, entry) for entry in ENTRIES if entry.method in METHODS}
        tables.append(_table(column, results))
        plots.append(_plot(number, column, results))
        verdicts += _verdicts(column, results)
        data[column.label] = {
            label: {
                "scores": [r.document["scores"] for r in runs],
                "train_seconds": [r.document["train_seconds"] for r in runs],
                "parameters": runs[0].document["parameters"],
                "config": runs[0].document["config"],
            }
            for label, runs in results.items()
        }
    trials = ", ".join(f"{e.label} {min(e.trials, workshop.effort.search_trials)}" for e in ENTRIES)
    return Artifact(
        "leaderboard",
        "Leaderboard: every method, one protocol",
        "The paper sets its model beside figures that others published; here all methods run on the same data.",
        tables=tables,
        plots=plots,
        verdicts=verdicts,
        notes=[
            f"Settings were chosen by H on {_SPLITS} validation splits of the training rows, starting from a "
            f"recipe of each method; trials: {trials}. The calibration of the seen scores was chosen there. The "
            "winner was trained on all training rows and scored once. Seconds are those of the final training, one "
            "thread, measured in the same run with as many others at a time as the machine has cores.",
            *(column.missing for column in workshop.columns if column.missing),
        ],
        data=data,
    )


def _entry(workshop: Workshop, column: Column, entry: Entry) -> list[Result]:
    """The runs of a method's winner, one per seed."""
    config = _winner(workshop, column, entry)
    count = min(workshop.effort.seeds, entry.seeds or workshop.effort.seeds)
    experiments = [Experiment(column.dataset, entry.method, entry.label, config, seed) for seed in range(count)]
    failed = workshop.run(f"{column.name}, {entry.label}: training", experiments)
    if failed:
        raise TrainingError(f"{column.name}, {entry.label}: {next(iter(failed.values())).message}")
    return [Result.read(workshop.folder / "runs" / experiment.name) for experiment in experiments]


def _winner(workshop: Workshop, column: Column, entry: Entry) -> Any:
    base = workshop.recipe(column, entry.method, entry.recipe).replace(**entry.fixed, calibration="validation")
    space = {k: v for k, v in method_named(entry.method).space.items() if k not in entry.fixed}
    if workshop.effort.shorten > 1:
        space.pop("epochs", None)  # a short version stays short
    small = workshop.changes(column, entry.method, entry.recipe)
    space = {name: values for name, values in space.items() if name not in small}
    settings = SearchConfig(
        trials=min(entry.trials, workshop.effort.search_trials), batch=2, splits=_SPLITS, recipe_first=True
    )
    with workshop.progress(f"{column.name}, {entry.label}: search") as progress:
        trials, best = search(
            column.dataset, entry.method, base, space, settings, workshop.folder / "fits", workshop.engine, progress
        )
    path: Path = workshop.folder / "leaderboard" / "searches" / f"{column.name}-{entry.label}.json"
    write_json(path, {"best": best.as_dict(), "trials": [asdict(trial) for trial in trials]})
    return best


def _mean(runs: Sequence[Result], score: str) -> float:
    return float(np.mean([run.scores[score] for run in runs]))


def _table(column: Column, results: Mapping[str, Sequence[Result]]) -> Table:
    order = sorted(results, key=lambda label: -_mean(results[label], "harmonic"))
    names = ("unseen", "seen", "harmonic", "zsl", "ausuc")
    rank = {name: ranks([_mean(results[label], name) for label in order]) for name in names}
    body = []
    for i, label in enumerate(order):
        runs = results[label]
        seconds = [float(run.document["train_seconds"]) for run in runs]
        cells = [Cell(label)]
        for name in names:
            values = [run.scores[name] for run in runs]
            cells.append(Cell(mean_text(values, spread=name == "harmonic"), rank[name][i]))
        cells.append(Cell(f"{np.mean(seconds):.1f}" if np.mean(seconds) >= 1 else f"{np.mean(seconds):.2f}"))
        cells += [Cell(f"{runs[0].document['parameters'] / 1e6:.2f}"), Cell(str(len(runs)))]
        body.append(cells)
    header = ["method", "U", "S", "H", "T1", "AUSUC", "training, s", "parameters, millions", "seeds"]
    return Table(f"{column.label}: percent, averaged over classes, mean over seeds", header, body)


def _plot(number: int, column: Column, results: Mapping[str, Sequence[Result]]) -> Plot:
    points = [
        Series(
            label,
            label,
            [max(0.01, float(np.mean([float(run.document["train_seconds"]) for run in runs])))],
            [_mean(runs, "harmonic")],
        )
        for label, runs in results.items()
    ]
    title = f"{column.label}: H against training time"
    return Plot(f"leaderboard-{number}", "points", title, "training (seconds)", "H (%)", points, log_x=True)


def _verdicts(column: Column, results: Mapping[str, Sequence[Result]]) -> list[Verdict]:
    def harmonic(label: str) -> list[float]:
        return [run.scores["harmonic"] for run in results[label]]

    found = []
    for label in ("RelationNet", "CVC-ZSL", "3-layer MLP"):
        if label in results:
            with_cn, without = harmonic(f"{label} + CN"), harmonic(label)
            gain = signed(float(np.mean(with_cn) - np.mean(without)))
            measured = f"H {np.mean(with_cn):.1f} against {np.mean(without):.1f}: {gain}"
            verdict = judge_difference(with_cn, without, 0.5)
            found.append(Verdict(f"Tuned, {label} is better with CN (by 0.5 H)", column.label, measured, verdict))
    if "f-CLSWGAN" in results:
        times = [
            float(np.mean([float(run.document["train_seconds"]) for run in results[label]]))
            for label in ("f-CLSWGAN", "3-layer MLP + CN")
        ]
        ours, theirs = np.mean(harmonic("3-layer MLP + CN")), np.mean(harmonic("f-CLSWGAN"))
        found.append(
            Verdict(
                "The MLP with CN trains at least 50 times faster than a generative model (f-CLSWGAN)",
                column.label,
                f"{times[0]:.0f} s against {times[1]:.0f} s: {times[0] / times[1]:.1f} times; "
                f"H {ours:.1f} against {theirs:.1f}",
                judge_bounds([times[0] / times[1]], low=50.0),
            )
        )
    return found
