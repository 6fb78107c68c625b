"""Every method on the same data under the same protocol: tuned on validation splits, tested once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from classnorm.experiments.experiment import Experiment
from classnorm.experiments.search import SearchConfig, search
from classnorm.files import write_json
from classnorm.methods import METHODS, MethodConfig, method_named
from classnorm.report.summary import SCORES
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.claims import harmonic_verdict
from classnorm.reproduce.reproduction import Reproduction, SeedRuns
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, ranks
from classnorm.results.numbers import number_text
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["ENTRIES", "Entry", "entries", "leaderboard"]

_SPLITS = 2
_FEW = 3  # trials of methods that take about a minute per fit; the first is the recipe


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
    """Maximum number of seeds, for a slow method."""


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
    """All entries, with one for every method of a plug-in."""
    known = {entry.method for entry in ENTRIES}
    return [*ENTRIES, *(Entry(name, name) for name in METHODS if name not in known)]


Standings = Mapping[str, SeedRuns]
"""Label of an entry → runs with its best settings."""


def leaderboard(reproduction: Reproduction) -> Artifact:
    """Search, train and score every method on every available benchmark."""
    tables, plots, verdicts, data = [], [], [], {}
    for number, benchmark in enumerate(reproduction.available):
        best_runs = partial(_best_runs, reproduction, benchmark)
        labels = [entry.label for entry in entries()]
        standings = dict(zip(labels, reproduction.engine.together(best_runs, entries()), strict=True))
        tables.append(_table(benchmark, standings))
        plots.append(_plot(number, benchmark, standings))
        verdicts += _verdicts(benchmark, standings)
        data[benchmark.label] = {
            label: {
                "scores": [result.document["scores"] for result in runs.finished],
                "train_seconds": runs.values("train_seconds"),
                "parameters": runs.finished[0].document["parameters"],
                "config": runs.finished[0].document["config"],
            }
            for label, runs in standings.items()
        }
    trials = ", ".join(f"{e.label} {min(e.trials, reproduction.effort.search_trials)}" for e in entries())
    return Artifact(
        "leaderboard",
        "Leaderboard: every method, one protocol",
        "The paper compares its model with published figures of other methods; here all methods run on the same data.",
        tables=tables,
        plots=plots,
        verdicts=verdicts,
        notes=[
            f"Settings and the calibration of the seen scores are chosen by H on {_SPLITS} validation splits of the "
            f"training rows, starting from a recipe of each method (trials: {trials}). The winner is trained on all "
            "training rows and tested once. Times are those of the final training with one thread, with as many runs "
            "in parallel as the machine has cores.",
            *reproduction.missing,
        ],
        data=data,
    )


def _best_runs(reproduction: Reproduction, benchmark: Benchmark, entry: Entry) -> SeedRuns:
    config = _search(reproduction, benchmark, entry)
    count = min(reproduction.effort.seeds, entry.seeds or reproduction.effort.seeds)
    experiments = [Experiment(benchmark.dataset, entry.method, entry.label, config, seed) for seed in range(count)]
    return reproduction.run(f"{benchmark.name}, {entry.label}: training", {entry.label: experiments})[entry.label]


def _search(reproduction: Reproduction, benchmark: Benchmark, entry: Entry) -> MethodConfig:
    base = reproduction.recipe(benchmark, entry.method, entry.recipe).replace(**entry.fixed, calibration="validation")
    fixed = {*entry.fixed, *reproduction.changes(benchmark, entry.method, entry.recipe)}
    if reproduction.effort.shorten > 1:
        fixed.add("epochs")
    space = {name: values for name, values in method_named(entry.method).space.items() if name not in fixed}
    if not space:
        return base
    settings = SearchConfig(
        trials=min(entry.trials, reproduction.effort.search_trials), batch=2, splits=_SPLITS, recipe_first=True
    )
    progress = reproduction.announce(f"{benchmark.name}, {entry.label}: search")
    fits = reproduction.folder / "fits"
    trials, best = search(benchmark.dataset, entry.method, base, space, settings, fits, reproduction.engine, progress)
    path = reproduction.folder / "leaderboard" / "searches" / f"{benchmark.name}-{entry.label}.json"
    write_json(path, {"best": best.as_dict(), "trials": [asdict(trial) for trial in trials]})
    return best


def _table(benchmark: Benchmark, standings: Standings) -> Table:
    order = sorted(standings.items(), key=lambda item: -item[1].mean("harmonic"))
    places = {score: ranks([runs.mean(score) for _, runs in order]) for score in SCORES}
    body = []
    for i, (label, runs) in enumerate(order):
        cells = [Cell(runs.cell(score, spread=score == "harmonic"), places[score][i]) for score in SCORES]
        seconds = runs.mean("train_seconds")
        parameters = runs.finished[0].document["parameters"] / 1e6
        facts = [number_text(seconds, 1 if seconds >= 1 else 2), number_text(parameters, 2), str(len(runs.results))]
        body.append([Cell(label), *cells, *map(Cell, facts)])
    columns = [short for short, _ in SCORES.values()]
    header = ["method", *columns, "training, s", "parameters, millions", "seeds"]
    return Table(f"{benchmark.label}: percent, averaged over classes, mean over seeds", header, body)


def _plot(number: int, benchmark: Benchmark, standings: Standings) -> Plot:
    points = [
        Series(label, label, [max(0.01, runs.mean("train_seconds"))], [runs.mean("harmonic")])
        for label, runs in standings.items()
    ]
    title = f"{benchmark.label}: H against training time"
    return Plot(f"leaderboard-{number}", "points", title, "training (seconds)", "H (%)", points, log_x=True)


def _verdicts(benchmark: Benchmark, standings: Standings) -> list[Verdict]:
    verdicts = [
        harmonic_verdict(
            f"Tuned, {label} is better with CN", benchmark, standings[f"{label} + CN"], standings[label], 0.5
        )
        for label in ("RelationNet", "CVC-ZSL", "3-layer MLP")
        if label in standings
    ]
    if "f-CLSWGAN" in standings:
        generative, mlp = standings["f-CLSWGAN"], standings["3-layer MLP + CN"]
        slow, fast = generative.mean("train_seconds"), mlp.mean("train_seconds")
        verdicts.append(
            Verdict(
                "The MLP with CN trains at least 50 times faster than a generative model (f-CLSWGAN)",
                benchmark.label,
                f"{slow:.0f} s against {fast:.0f} s: {slow / fast:.1f} times; "
                f"H {number_text(mlp.mean('harmonic'))} against {number_text(generative.mean('harmonic'))}",
                judge_bounds([slow / fast], low=50.0),
            )
        )
    return verdicts
