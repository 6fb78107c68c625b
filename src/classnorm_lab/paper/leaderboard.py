"""Every method on the same data under the same protocol: as much time on validation splits, tested once."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from classnorm.io.escapes import file_name
from classnorm.io.files import digest, write_json
from classnorm.methods import METHODS, MethodConfig, method_named
from classnorm.methods.space import Space
from classnorm.progress import stage
from classnorm.report.summary import SCORES
from classnorm.results.artifact import Cell, Plot, Series, Table, ranks
from classnorm.results.numbers import number_text
from classnorm.results.run_folder import Result
from classnorm.runs.experiment import Experiment
from classnorm.runs.search import SearchConfig, Trial, search
from classnorm_lab.diagnoses.diagnosis import MODEL_COLORS
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.measured import Measured, SeedRuns, Setting
from classnorm_lab.paper.published import FEATURES, published
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.transductive import NOTE, measure_transductive, transductive_tables
from classnorm_lab.paper.variants import PUBLISHED_NAMES, RIVALS
from classnorm_lab.paper.verdicts import Finding, Verdict, harmonic_verdict

_SPLITS = 2
_FACTS = ("trials", "add_class_ms")  # of an entry, not of a seed


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
    Entry("3-layer MLP + CN, no final ReLU", "classnorm", fixed={"final_relu": False}),
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
    *(Entry(label, method) for label, method in RIVALS.items() if method not in ("relationnet", "cvc")),
    Entry("CLIP zero-shot", "clip"),
)
_DESIGNED = ("Kernel prototypes", "3-layer MLP + CN, best")
_TRANSDUCTIVE = ("Kernel prototypes",)
_CN = "3-layer MLP + CN"
_PAIRS = ("RelationNet", "CVC-ZSL", "3-layer MLP")


def entries() -> list[Entry]:
    """All entries, with one for every method of a plug-in."""
    known = {entry.method for entry in ENTRIES}
    return [*ENTRIES, *(Entry(name, name) for name in METHODS if name not in known)]


def measure_leaderboard(reproduction: Reproduction) -> dict[str, Any]:
    """Search, train and score every method on every available dataset."""
    runs = {}
    for paper_dataset in reproduction.available:
        best_runs = partial(_best_runs, reproduction, paper_dataset)
        able = [entry for entry in entries() if method_named(entry.method).unsupported(paper_dataset.dataset) is None]
        for entry, found in zip(able, reproduction.engine.together(best_runs, able), strict=True):
            if found is not None:
                runs[entry.label, paper_dataset.name] = found
    measured = Measured([paper_dataset.setting for paper_dataset in reproduction.datasets], runs)
    adapting = {entry.label: entry.method for entry in entries() if entry.label in _TRANSDUCTIVE}
    effort = reproduction.effort
    return {
        **measured.as_dict(),
        "transductive": measure_transductive(reproduction, adapting),
        "trials": effort.search_trials,
        "seconds": effort.search_seconds,
    }


def leaderboard(data: Mapping[str, Any]) -> Finding:
    measured, transductive = Measured.of(data), transductive_tables(data)
    shown = {label for label, _ in measured.runs}
    knowing = ", ".join(e.label for e in entries() if e.label in shown and METHODS[e.method].sees_unseen)
    return Finding(
        "leaderboard",
        "Leaderboard: every method, one protocol",
        "The paper compares its model with published figures of other methods; here all methods run on the same data.",
        tables=[
            *(_table(setting, measured) for setting in measured.available),
            *(_order(setting, measured) for setting in measured.available if setting.paper),
            *transductive,
        ],
        plots=[_plot(number, setting, measured) for number, setting in enumerate(measured.available)],
        verdicts=[verdict for setting in measured.available for verdict in _verdicts(setting, measured)],
        notes=[
            f"{_budget(data['trials'], data['seconds'])} The first trial has the settings of the recipe; settings and "
            f"the calibration of the seen scores are chosen by H on {_SPLITS} validation splits of the training rows. "
            "The winner is trained on all training rows and tested once.",
            "Most systems of the paper's main table are trained for a small share of their published schedules, which "
            "the table “main” states. With few trials, a slow method keeps the settings of its recipe but for the "
            "calibration; “3-layer MLP + CN” has the ReLU on the prototypes that the authors' release has.",
            *(
                [f"Trained with the descriptors of the unseen classes, so that they know which will come: {knowing}."]
                if knowing
                else []
            ),
            "The order of two systems agrees by chance in half of the pairs. The published figures of EPGN and ZSML on "
            "CUB are with descriptors from sentences.",
            "CPU seconds are those of the final training, summed over threads. “Add a class”: milliseconds until a "
            "trained model scores one more class, from its descriptor.",
            f"{' and '.join(_DESIGNED)} were designed on validation splits of CUB (efficientnet_lite0) and "
            "glyphs-light; glyphs-greek was frozen before any method had been run on it.",
            *([NOTE] if transductive else []),
            *measured.missing,
        ],
        data=dict(data),
    )


def _budget(trials: int, seconds: float) -> str:
    if not seconds:
        return f"Every method has {trials} trials."
    return (
        f"Every method has the same {seconds:g} CPU seconds for its trials: it starts no further one after that, nor "
        f"after {trials} trials."
    )


def _best_runs(reproduction: Reproduction, paper_dataset: PaperDataset, entry: Entry) -> SeedRuns | None:
    """The runs of an entry with the settings that its search chose; None if the time is up.

    Known runs are completed: what is missing is the search and all seeds, further seeds, or nothing.
    """
    effort = reproduction.effort
    base, space = search_space(reproduction, paper_dataset, entry)
    settings = SearchConfig(
        trials=effort.search_trials,
        seconds=effort.search_seconds,
        batch=1,
        splits=_SPLITS,
        recipe_first=True,
        prune=False,
    )
    searched = [entry.method, base.as_dict(), str(sorted(space.items())), asdict(settings)]
    key = digest([paper_dataset.dataset.checksum, *searched, str(paper_dataset.released)])[:16]
    known = reproduction.known.get(key)
    count = len(reproduction.seeds(paper_dataset, entry.seeds))
    if known is not None and known.n >= count:
        return known if known.diverged else known.first(count)
    if reproduction.time_is_up:
        return known
    if known is None:
        trials, config = _search(reproduction, paper_dataset, entry, base, space, settings) if space else ([], base)
    else:
        config = base.replace(**json.loads(known.chosen))
    seeds = range(known.n if known else 0, count)
    experiments = [Experiment(paper_dataset.dataset, entry.method, entry.label, config, seed) for seed in seeds]
    stage = f"{paper_dataset.name}, {entry.label}: training"
    results = reproduction.run(stage, {entry.label: experiments}, may_diverge=True)[entry.label]
    runs = SeedRuns.of(results, paper_dataset.released)
    if known is not None:
        facts = {name: known.numbers[name][0] for name in _FACTS}
    else:
        facts = dict(zip(_FACTS, (float(len(trials)), _add_class_ms(results[0])), strict=True))
    runs = replace(runs, numbers={**runs.numbers, **{name: [value] * len(seeds) for name, value in facts.items()}})
    chosen = {name: value for name, value in config.as_dict().items() if value != base.as_dict()[name]}
    return known.followed_by(runs) if known else replace(runs, key=key, chosen=json.dumps(chosen))


def _add_class_ms(result: Result | None) -> float | None:
    """Milliseconds until the model scores one more class, the shortest of several."""
    if result is None:
        return None
    from classnorm.scoring import Scorer  # PyTorch

    scorer = Scorer.load(result.folder, "cpu")
    row = np.ones((1, scorer.d_z), dtype=np.float32)
    scorer.scores(row)  # prototypes of the known classes
    times = []
    for part in (0.4, 0.5, 0.6):
        descriptor = part * scorer.descriptors[0] + (1 - part) * scorer.descriptors[-1]
        started = time.perf_counter()
        scorer.add_classes({"new": descriptor}).scores(row)
        times.append(time.perf_counter() - started)
    return round(1000 * min(times), 2)


def search_space(reproduction: Reproduction, paper_dataset: PaperDataset, entry: Entry) -> tuple[MethodConfig, Space]:
    """The first trial of a method, and the settings that the others vary."""
    base = reproduction.recipe(paper_dataset, entry.method, entry.recipe).replace(
        **entry.fixed, calibration="validation"
    )
    fixed = {*entry.fixed, *reproduction.changes(paper_dataset, entry.method, entry.recipe)}
    if reproduction.effort.shorten > 1:
        fixed.add("epochs")
    return base, {name: values for name, values in method_named(entry.method).space.items() if name not in fixed}


def _search(
    reproduction: Reproduction,
    paper_dataset: PaperDataset,
    entry: Entry,
    base: MethodConfig,
    space: Space,
    settings: SearchConfig,
) -> tuple[list[Trial], MethodConfig]:
    fits, engine = reproduction.folder / "fits", reproduction.engine
    with stage(f"{paper_dataset.name}, {entry.label}: search"):
        trials, best = search(paper_dataset.dataset, entry.method, base, space, settings, fits, engine)
    path = reproduction.folder / "leaderboard" / "searches" / f"{file_name(paper_dataset.name)}-{entry.label}.json"
    write_json(path, {"best": best.as_dict(), "trials": [asdict(trial) for trial in trials]})
    return trials, best


def _standings(setting: Setting, measured: Measured) -> dict[str, SeedRuns]:
    return {label: runs for (label, name), runs in measured.runs.items() if name == setting.name}


def _table(setting: Setting, measured: Measured) -> Table:
    order = sorted(_standings(setting, measured).items(), key=lambda item: -item[1].mean("harmonic"))
    places = {score: ranks([runs.mean(score) for _, runs in order]) for score in SCORES}
    body = []
    for i, (label, runs) in enumerate(order):
        cells = [Cell(runs.cell(score, spread=score == "harmonic"), places[score][i]) for score in SCORES]
        facts = [number_text(runs.mean("cpu_seconds")), number_text(runs.mean("parameters") / 1e6, 2)]
        facts += [number_text(runs.mean("add_class_ms")), f"{runs.mean('trials'):.0f}", str(runs.n)]
        body.append([Cell(label), *cells, *map(Cell, facts)])
    header = ["method", *(short for short, _ in SCORES.values()), "CPU seconds", "parameters, millions"]
    header += ["add a class, ms", "trials", "seeds"]
    return Table(f"{setting.label}: percent, averaged over classes, mean ± std over seeds", header, body)


def _order(setting: Setting, measured: Measured) -> Table:
    """H of the systems of the paper's main table, here and as published, and how far their orders agree."""
    standings, paper = _standings(setting, measured), published("main")
    pairs = []
    for label in RIVALS:
        printed = paper[PUBLISHED_NAMES.get(label, label)].score(setting.paper, "H")
        if label in standings and printed is not None:
            pairs.append((label, printed, standings[label].mean("harmonic")))
    pairs.sort(key=lambda pair: -pair[1])
    ordered = [a[2] > b[2] for a, b in combinations(pairs, 2) if a[1] != b[1]]
    title = f"{setting.label}: the published order holds for {sum(ordered)} of {len(ordered)} pairs of systems"
    body = [[label, number_text(before), number_text(here)] for label, before, here in pairs]
    return Table.of(title, ["system", f"H in the paper ({FEATURES})", "H here"], body)


def _plot(number: int, setting: Setting, measured: Measured) -> Plot:
    series = [
        Series(label, label.removesuffix(", best"), [runs.mean("cpu_seconds")], [runs.mean("harmonic")])
        for label, runs in _standings(setting, measured).items()
        if runs.diverged < runs.n
    ]
    title = f"{setting.label}: H against training time"
    return Plot(
        f"leaderboard-{number}",
        "points",
        title,
        "CPU seconds of the final training",
        "H",
        series,
        log_x=True,
        colors=MODEL_COLORS,
    )


def _verdicts(setting: Setting, measured: Measured) -> list[Verdict]:
    standings = _standings(setting, measured)
    same = "With the same search time,"
    pairs = [(f"{same} {label} is better with CN", f"{label} + CN", label) for label in _PAIRS]
    pairs += [(f"{same} {label} beats the MLP with CN", label, _CN) for label in _DESIGNED]
    pairs += [(f"{same} the MLP with CN beats {label}", _CN, label) for label in RIVALS]
    return [
        harmonic_verdict(text, setting, standings[better], standings[worse], 0.5, "calibrated")
        for text, better, worse in pairs
        if better in standings and worse in standings
    ]
