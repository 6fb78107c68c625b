"""Every method on the same data under the same protocol: settings by validation, one calibration rule, test once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from classnorm.errors import TrainingError
from classnorm.experiments.experiment import Experiment
from classnorm.experiments.search import SearchConfig, search
from classnorm.files import write_json
from classnorm.methods import METHODS, method_named
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.claims import harmonic_verdict
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, ranks
from classnorm.results.numbers import mean, mean_text, number_text
from classnorm.results.run_folder import Result
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["ENTRIES", "Entry", "entries", "leaderboard"]

_SPLITS = 2
_FEW = 3  # trials of the methods that take a minute or so a fit, the recipe first


@dataclass(frozen=True)
class Entry:
    """A method on the leaderboard."""

    label: str
    method: str
    recipe: str = "reference"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not searched."""
    trials: int = 8
    seeds: int | None = None
    """Upper limit of the seeds, for a slow method."""


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


def entries() -> list[Entry]:
    """Every method, those of plug-ins under their own names."""
    known = {entry.method for entry in ENTRIES}
    return [*ENTRIES, *(Entry(name, name) for name in METHODS if name not in known)]


def leaderboard(reproduction: Reproduction) -> Artifact:
    """Search, train and score every method on every available benchmark."""
    tables, plots, verdicts, data = [], [], [], {}
    for number, benchmark in enumerate(reproduction.available):
        results = {entry.label: _entry(reproduction, benchmark, entry) for entry in entries()}
        tables.append(_table(benchmark, results))
        plots.append(_plot(number, benchmark, results))
        verdicts += _verdicts(benchmark, results)
        data[benchmark.label] = {
            label: {
                "scores": [r.document["scores"] for r in runs],
                "train_seconds": [r.document["train_seconds"] for r in runs],
                "parameters": runs[0].document["parameters"],
                "config": runs[0].document["config"],
            }
            for label, runs in results.items()
        }
    trials = ", ".join(f"{e.label} {min(e.trials, reproduction.effort.search_trials)}" for e in entries())
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
            *reproduction.missing,
        ],
        data=data,
    )


def _entry(reproduction: Reproduction, benchmark: Benchmark, entry: Entry) -> list[Result]:
    """Runs with the best settings of a method, one per seed."""
    config = _search(reproduction, benchmark, entry)
    count = min(reproduction.effort.seeds, entry.seeds or reproduction.effort.seeds)
    experiments = [Experiment(benchmark.dataset, entry.method, entry.label, config, seed) for seed in range(count)]
    failed = reproduction.run(f"{benchmark.name}, {entry.label}: training", experiments)
    if failed:
        raise TrainingError(f"{benchmark.name}, {entry.label}: {next(iter(failed.values())).message}")
    return [Result.read(reproduction.runs / experiment.name) for experiment in experiments]


def _search(reproduction: Reproduction, benchmark: Benchmark, entry: Entry) -> Any:
    base = reproduction.recipe(benchmark, entry.method, entry.recipe).replace(**entry.fixed, calibration="validation")
    space = {k: v for k, v in method_named(entry.method).space.items() if k not in entry.fixed}
    if reproduction.effort.shorten > 1:
        space.pop("epochs", None)  # a short version stays short
    small = reproduction.changes(benchmark, entry.method, entry.recipe)
    space = {name: values for name, values in space.items() if name not in small}
    settings = SearchConfig(
        trials=min(entry.trials, reproduction.effort.search_trials), batch=2, splits=_SPLITS, recipe_first=True
    )
    if not space:
        return base
    progress = reproduction.announce(f"{benchmark.name}, {entry.label}: search")
    fits = reproduction.folder / "fits"
    trials, best = search(benchmark.dataset, entry.method, base, space, settings, fits, reproduction.engine, progress)
    path: Path = reproduction.folder / "leaderboard" / "searches" / f"{benchmark.name}-{entry.label}.json"
    write_json(path, {"best": best.as_dict(), "trials": [asdict(trial) for trial in trials]})
    return best


def _values(runs: Sequence[Result], score: str) -> list[float]:
    return [run.scores[score] for run in runs]


def _seconds(runs: Sequence[Result]) -> float:
    return mean([float(run.document["train_seconds"]) for run in runs])


def _table(benchmark: Benchmark, results: Mapping[str, Sequence[Result]]) -> Table:
    order = sorted(results, key=lambda label: -mean(_values(results[label], "harmonic")))
    scores = ("unseen", "seen", "harmonic", "zsl", "ausuc")
    places = {score: ranks([mean(_values(results[label], score)) for label in order]) for score in scores}
    body = []
    for i, label in enumerate(order):
        runs = results[label]
        cells = [
            Cell(mean_text(_values(runs, score), spread=score == "harmonic"), places[score][i]) for score in scores
        ]
        seconds = number_text(_seconds(runs), 1 if _seconds(runs) >= 1 else 2)
        parameters = number_text(runs[0].document["parameters"] / 1e6, 2)
        body.append([Cell(label), *cells, Cell(seconds), Cell(parameters), Cell(str(len(runs)))])
    header = ["method", "U", "S", "H", "T1", "AUSUC", "training, s", "parameters, millions", "seeds"]
    return Table(f"{benchmark.label}: percent, averaged over classes, mean over seeds", header, body)


def _plot(number: int, benchmark: Benchmark, results: Mapping[str, Sequence[Result]]) -> Plot:
    points = [
        Series(label, label, [max(0.01, _seconds(runs))], [mean(_values(runs, "harmonic"))])
        for label, runs in results.items()
    ]
    title = f"{benchmark.label}: H against training time"
    return Plot(f"leaderboard-{number}", "points", title, "training (seconds)", "H (%)", points, log_x=True)


def _verdicts(benchmark: Benchmark, results: Mapping[str, Sequence[Result]]) -> list[Verdict]:
    harmonic = {label: _values(runs, "harmonic") for label, runs in results.items()}
    verdicts = [
        harmonic_verdict(
            f"Tuned, {label} is better with CN", benchmark, harmonic[f"{label} + CN"], harmonic[label], 0.5
        )
        for label in ("RelationNet", "CVC-ZSL", "3-layer MLP")
        if label in results
    ]
    mlp, generative = "3-layer MLP + CN", "f-CLSWGAN"
    if generative in results:
        slow, fast = _seconds(results[generative]), _seconds(results[mlp])
        verdicts.append(
            Verdict(
                "The MLP with CN trains at least 50 times faster than a generative model (f-CLSWGAN)",
                benchmark.label,
                f"{slow:.0f} s against {fast:.0f} s: {slow / fast:.1f} times; "
                f"H {number_text(mean(harmonic[mlp]))} against {number_text(mean(harmonic[generative]))}",
                judge_bounds([slow / fast], low=50.0),
            )
        )
    return verdicts
