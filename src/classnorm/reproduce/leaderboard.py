"""Every method on the same data under the same protocol: as many trials on validation splits, tested once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from classnorm.experiments.experiment import Experiment
from classnorm.experiments.search import SearchConfig, search
from classnorm.files import write_json
from classnorm.methods import METHODS, MethodConfig, method_named
from classnorm.methods.space import Space
from classnorm.report.summary import SCORES
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.claims import harmonic_verdict
from classnorm.reproduce.measured import Measured, SeedRuns, Setting
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact, Cell, Table, ranks
from classnorm.results.numbers import number_text
from classnorm.results.verdicts import Verdict

__all__ = ["ENTRIES", "Entry", "entries", "leaderboard", "measure_leaderboard", "search_space"]

_SPLITS = 2


@dataclass(frozen=True)
class Entry:
    """A method on the leaderboard."""

    label: str
    method: str
    recipe: str = "reference"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not searched."""
    seeds: int | None = None
    """Maximum number of seeds, for a slow method."""


ENTRIES = (
    Entry("3-layer MLP + CN", "classnorm"),
    Entry("3-layer MLP", "classnorm", "baseline"),
    Entry("3-layer MLP + CN, best", "classnorm", "best"),
    Entry("RelationNet", "relationnet", fixed={"class_norm": False}),
    Entry("RelationNet + CN", "relationnet", "class-norm", {"class_norm": True}),
    Entry("CVC-ZSL", "cvc", fixed={"class_norm": False}),
    Entry("CVC-ZSL + CN", "cvc", "class-norm", {"class_norm": True}),
    Entry("DEM", "dem"),
    Entry("DeViSE", "devise"),
    Entry("ALE", "ale"),
    Entry("SJE", "sje"),
    Entry("ConSE", "conse"),
    Entry("SYNC", "sync"),
    Entry("ESZSL", "eszsl"),
    Entry("SAE", "sae"),
    Entry("Kernel prototypes", "kernel"),
    Entry("f-CLSWGAN", "fclswgan", seeds=1),
    Entry("f-VAEGAN", "fvaegan", seeds=1),
    Entry("TF-VAEGAN", "tfvaegan", seeds=1),
    Entry("DASCN", "dascn", seeds=1),
)
_DESIGNED = ("Kernel prototypes", "3-layer MLP + CN, best")
_PAIRS = ("RelationNet", "CVC-ZSL", "3-layer MLP")


def entries() -> list[Entry]:
    """All entries, with one for every method of a plug-in."""
    known = {entry.method for entry in ENTRIES}
    return [*ENTRIES, *(Entry(name, name) for name in METHODS if name not in known)]


def measure_leaderboard(reproduction: Reproduction) -> dict[str, Any]:
    """Search, train and score every method on every available benchmark."""
    runs = {}
    for benchmark in reproduction.available:
        best_runs = partial(_best_runs, reproduction, benchmark)
        for entry, found in zip(entries(), reproduction.engine.together(best_runs, entries()), strict=True):
            runs[entry.label, benchmark.name] = found
    measured = Measured([benchmark.setting for benchmark in reproduction.benchmarks], runs)
    return measured.as_dict() | {"trials": reproduction.effort.search_trials}


def leaderboard(data: Mapping[str, Any]) -> Artifact:
    measured = Measured.of(data)
    return Artifact(
        "leaderboard",
        "Leaderboard: every method, one protocol",
        "The paper compares its model with published figures of other methods; here all methods run on the same data.",
        tables=[_table(setting, measured) for setting in measured.available],
        verdicts=[verdict for setting in measured.available for verdict in _verdicts(setting, measured)],
        notes=[
            f"Every method has {data['trials']} trials, the first with its recipe; settings and the calibration of the "
            f"seen scores are chosen by H on {_SPLITS} validation splits of the training rows. The winner is trained "
            "on all training rows and tested once.",
            f"{' and '.join(_DESIGNED)} were designed on validation splits of CUB (efficientnet_lite0) and "
            "glyphs-light; glyphs-greek was frozen before any method had been run on it.",
            *measured.missing,
        ],
        data=dict(data),
    )


def _best_runs(reproduction: Reproduction, benchmark: Benchmark, entry: Entry) -> SeedRuns:
    config = _search(reproduction, benchmark, entry)
    count = min(reproduction.effort.seeds, entry.seeds or reproduction.effort.seeds)
    experiments = [Experiment(benchmark.dataset, entry.method, entry.label, config, seed) for seed in range(count)]
    results = reproduction.run(f"{benchmark.name}, {entry.label}: training", {entry.label: experiments})[entry.label]
    return SeedRuns.of(results, benchmark.released)


def search_space(reproduction: Reproduction, benchmark: Benchmark, entry: Entry) -> tuple[MethodConfig, Space]:
    """The first trial of a method, and the settings that the others vary."""
    base = reproduction.recipe(benchmark, entry.method, entry.recipe).replace(**entry.fixed, calibration="validation")
    fixed = {*entry.fixed, *reproduction.changes(benchmark, entry.method, entry.recipe)}
    if reproduction.effort.shorten > 1:
        fixed.add("epochs")
    return base, {name: values for name, values in method_named(entry.method).space.items() if name not in fixed}


def _search(reproduction: Reproduction, benchmark: Benchmark, entry: Entry) -> MethodConfig:
    base, space = search_space(reproduction, benchmark, entry)
    if not space:
        return base
    settings = SearchConfig(
        trials=reproduction.effort.search_trials, batch=2, splits=_SPLITS, recipe_first=True, prune=False
    )
    progress = reproduction.announce(f"{benchmark.name}, {entry.label}: search")
    fits = reproduction.folder / "fits"
    trials, best = search(benchmark.dataset, entry.method, base, space, settings, fits, reproduction.engine, progress)
    path = reproduction.folder / "leaderboard" / "searches" / f"{benchmark.name}-{entry.label}.json"
    write_json(path, {"best": best.as_dict(), "trials": [asdict(trial) for trial in trials]})
    return best


def _standings(setting: Setting, measured: Measured) -> dict[str, SeedRuns]:
    return {label: runs for (label, name), runs in measured.runs.items() if name == setting.name}


def _table(setting: Setting, measured: Measured) -> Table:
    order = sorted(_standings(setting, measured).items(), key=lambda item: -item[1].mean("harmonic"))
    places = {score: ranks([runs.mean(score) for _, runs in order]) for score in SCORES}
    body = []
    for i, (label, runs) in enumerate(order):
        cells = [Cell(runs.cell(score, spread=score == "harmonic"), places[score][i]) for score in SCORES]
        parameters = number_text(runs.mean("parameters") / 1e6, 2)
        body.append([Cell(label), *cells, Cell(parameters), Cell(str(runs.n))])
    header = ["method", *(short for short, _ in SCORES.values()), "parameters, millions", "seeds"]
    return Table(f"{setting.label}: percent, averaged over classes, mean ± std over seeds", header, body)


def _verdicts(setting: Setting, measured: Measured) -> list[Verdict]:
    standings = _standings(setting, measured)
    pairs = [(f"Tuned, {label} is better with CN", f"{label} + CN", label) for label in _PAIRS]
    pairs += [(f"Tuned, {label} beats the MLP with CN", label, "3-layer MLP + CN") for label in _DESIGNED]
    return [
        harmonic_verdict(text, setting, standings[better], standings[worse], 0.5, "calibrated")
        for text, better, worse in pairs
        if better in standings and worse in standings
    ]
