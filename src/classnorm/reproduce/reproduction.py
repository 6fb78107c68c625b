"""Run what a table needs and put measured and published figures together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from classnorm.errors import ClassNormError
from classnorm.experiments.engine import Engine, Failure, run_converging
from classnorm.experiments.experiment import Experiment
from classnorm.methods import MethodConfig, resolve
from classnorm.reproduce.benchmarks import Column
from classnorm.reproduce.published import BENCHMARKS, FEATURES, published, published_columns
from classnorm.reproduce.table_specs import TABLES, TableSpec
from classnorm.reproduce.variants import Row
from classnorm.results.artifact import Artifact, Cell, Table, ranks
from classnorm.results.numbers import json_number, mean_text, signed
from classnorm.results.run_folder import Result
from classnorm.results.verdicts import Verdict, judge_difference
from classnorm.training import TrainingConfig

__all__ = ["QUICK", "Effort", "Measured", "Workshop", "contradictions", "measure", "table_artifact"]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much work goes into a reproduction."""

    seeds: int = 3
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the MLPs, over those of the recipe."""
    shorten: int = 1
    """Other methods train for their recipe's number of epochs divided by this."""
    variance_iterations: int = 300
    smoothness_iterations: int = 2500
    smoothness_every: int = 25
    smoothness_width: int = 512
    search_trials: int = 8
    stream_epochs: int = 5


QUICK = Effort(
    seeds=2,
    changes={"hidden": 128, "epochs": 6, "lr": 2e-3, "validation_splits": 1},
    variance_iterations=60,
    smoothness_iterations=100,
    smoothness_every=10,
    smoothness_width=128,
    search_trials=2,
    stream_epochs=1,
    shorten=10,
)


@dataclass(frozen=True)
class Workshop:
    """Where and on what a reproduction works: columns, effort, engine and a folder that keeps every run."""

    columns: Sequence[Column]
    effort: Effort
    engine: Engine
    folder: Path
    progress: Callable[[str], Any]
    """A context manager that shows the progress of a batch."""
    image_split: Path | None = None
    """Official training and test images of CUB, for its class stream."""

    @property
    def at_hand(self) -> list[Column]:
        return [column for column in self.columns if not column.missing]

    def experiment(self, row: Row, column: Column, seed: int) -> Experiment:
        config = self.recipe(column, row.method, row.recipe).replace(**row.changes)
        return Experiment(column.dataset, row.method, row.label, config, seed)

    def recipe(self, column: Column, method: str, recipe: str) -> MethodConfig:
        """A recipe for a dataset, made shorter where the effort says so."""
        _, config = resolve(column.dataset, method, recipe)
        changes = self.changes(column, method, recipe)
        if not changes and isinstance(config, TrainingConfig) and self.effort.shorten > 1:
            changes = {"epochs": max(1, config.epochs // self.effort.shorten)}
        return config.replace(**changes)

    def changes(self, column: Column, method: str, recipe: str) -> dict[str, Any]:
        """What differs from a recipe on a dataset; `best` is short, and the same for all data."""
        return {**column.changes, **self.effort.changes} if method == "classnorm" and recipe != "best" else {}

    def run(self, what: str, tasks: Sequence[Any]) -> dict[str, Failure]:
        """Do what is not done yet; the messages of what failed, by name. What diverged would do so again."""
        with self.progress(what) as progress:
            return run_converging(tasks, self.folder / "runs", self.engine, progress)


@dataclass(frozen=True)
class Measured:
    """The runs of a row on a dataset, one per seed; None for a training that diverged."""

    results: tuple[Result | None, ...]

    def values(self, score: str) -> list[float]:
        """One per seed; a diverged training has learnt nothing: 0."""
        return [0.0 if r is None else _number(r, score) for r in self.results]

    def cell(self, score: str, spread: bool = False) -> str:
        if all(result is None for result in self.results):
            return "diverged"
        return mean_text(self.values(score), spread=spread)


def _number(result: Result, score: str) -> float:
    return result.scores[score] if score in result.scores else float(result.document[score])


def measure(workshop: Workshop, what: str, rows: Sequence[Row]) -> dict[tuple[str, str], Measured]:
    """Run rows on all datasets at hand; (row, column) → its runs."""
    experiments = {
        (row.label, column.name): [workshop.experiment(row, column, seed) for seed in range(workshop.effort.seeds)]
        for row in rows
        for column in workshop.at_hand
    }
    failed = workshop.run(what, [e for group in experiments.values() for e in group])
    unexpected = [failure.message for failure in failed.values() if not failure.diverged]
    if unexpected:
        raise ClassNormError(f"{what}: a run failed: {unexpected[0]}")
    root = workshop.folder / "runs"
    return {
        key: Measured(tuple(None if e.name in failed else Result.read(root / e.name) for e in group))
        for key, group in experiments.items()
    }


def table_artifact(spec: TableSpec, workshop: Workshop) -> Artifact:
    """A table with its published figures beside."""
    own = {row.label for row in spec.rows}
    others = {r.label: r for claim in spec.claims for r in (claim.better, claim.worse) if r.label not in own}
    measured = measure(workshop, spec.name, [*spec.rows, *others.values()])
    columns = workshop.columns
    details = [_detail(spec, column, measured) for column in workshop.at_hand]
    tables = [_overview(spec, columns, measured), *details, _published_table(spec)]
    return Artifact(
        spec.name,
        spec.title,
        spec.says,
        tables=tables,
        verdicts=verdicts(spec, workshop.at_hand, measured),
        notes=[column.missing for column in columns if column.missing] + contradictions(spec),
        data={"measured": _data(measured, workshop.at_hand)},
    )


def _overview(spec: TableSpec, columns: Sequence[Column], measured: Mapping[tuple[str, str], Measured]) -> Table:
    """H on every dataset, with the paper's beside; a dash where a dataset is not at hand."""
    header = ["measured here"]
    for column in columns:
        header.append(column.name if column.missing else column.label)
        header += ["paper (ResNet-101)"] if column.name in BENCHMARKS and not column.missing else []
    places = {column.name: _places(spec, column, measured) for column in columns if not column.missing}
    body = []
    for number, row in enumerate(spec.rows):
        cells = [Cell(row.label)]
        for column in columns:
            if column.missing:
                cells.append(Cell("–"))
                continue
            group = measured[row.label, column.name]
            cells.append(Cell(group.cell("harmonic", spread=True), places[column.name][number]))
            if column.name in BENCHMARKS:
                entry = published(spec.name).get(row.printed)
                cells.append(Cell((entry.cells.get(f"{column.name} H", "") if entry else "") or "–"))
        body.append(cells)
    beside = ", and H in the paper" if "paper (ResNet-101)" in header else ""
    return Table(f"H measured here, mean ± std over seeds{beside}", header, body)


def _detail(spec: TableSpec, column: Column, measured: Mapping[tuple[str, str], Measured]) -> Table:
    """All scores on one dataset."""
    places = _places(spec, column, measured)
    names = ("unseen", "seen", "harmonic", "zsl", "ausuc")
    body = []
    for number, row in enumerate(spec.rows):
        group = measured[row.label, column.name]
        scores = [Cell(group.cell(name, spread=True), places[number] if name == "harmonic" else None) for name in names]
        body.append([Cell(row.label), *scores])
    title = f"{column.label}: percent, averaged over classes, mean ± std over {len(group.results)} seeds"
    return Table(title, ["measured here", "U", "S", "H", "T1", "AUSUC"], body)


def _places(spec: TableSpec, column: Column, measured: Mapping[tuple[str, str], Measured]) -> list[int | None]:
    return ranks([float(np.mean(measured[row.label, column.name].values("harmonic"))) for row in spec.rows])


def _published_table(spec: TableSpec) -> Table:
    columns = published_columns(spec.name)
    rows = [[row.label, *(row.cells[column] or "–" for column in columns)] for row in published(spec.name).values()]
    return Table.of(f"The paper's figures ({FEATURES})", ["published", *columns], rows)


def verdicts(spec: TableSpec, columns: Sequence[Column], measured: Mapping[tuple[str, str], Measured]) -> list[Verdict]:
    found = []
    for claim in spec.claims:
        for column in columns:
            better, worse = (measured[row.label, column.name].values("harmonic") for row in (claim.better, claim.worse))
            difference = f"H {np.mean(better):.1f} against {np.mean(worse):.1f}: "
            difference += f"{signed(float(np.mean(better) - np.mean(worse)))} over {len(better)} seeds"
            text = f"{claim.text} (by {claim.margin:g} H)"
            found.append(Verdict(text, column.label, difference, judge_difference(better, worse, claim.margin)))
    return found


def _data(measured: Mapping[tuple[str, str], Measured], columns: Sequence[Column]) -> list[dict[str, Any]]:
    labels = {column.name: column.label for column in columns}
    scores = ("unseen", "seen", "harmonic", "zsl", "ausuc", "train_seconds")
    return [
        {"row": row, "dataset": labels[column], "diverged": sum(r is None for r in group.results)}
        | {score: [json_number(v) for v in group.values(score)] for score in scores}
        for (row, column), group in measured.items()
    ]


def contradictions(spec: TableSpec) -> list[str]:
    """Where this table of the paper and another disagree about the same model, or agree about different ones."""
    entries = [
        (other.name, row, published(other.name)[row.printed])
        for other in TABLES.values()
        for row in other.rows
        if row.printed in published(other.name)
    ]
    found = []
    for row in spec.rows:
        mine = published(spec.name).get(row.printed)
        for table, other, theirs in entries:
            if mine is None or (table, other.label) == (spec.name, row.label):
                continue
            shared = [c for c in mine.cells if mine.cells[c] and theirs.cells.get(c)]
            differing = [c for c in shared if mine.cells[c] != theirs.cells[c]]
            same_model = _settings(row) == _settings(other)
            if same_model and differing and table != spec.name:
                values = ", ".join(f"{c} {mine.cells[c]} and {theirs.cells[c]}" for c in differing[:3])
                found.append(f"The paper on “{row.label}”: table {spec.name} and table {table} differ ({values}).")
            elif not same_model and shared and not differing:
                found.append(
                    f"The paper gives “{row.label}” here the same figures as “{other.label}” in table {table}, "
                    "which is another model."
                )
    return list(dict.fromkeys(found))


def _settings(row: Row) -> tuple[Any, ...]:
    """What decides the model; a γ of 5 is the recipe's own."""
    changes = {name: value for name, value in row.changes.items() if (name, value) != ("gamma", 5.0)}
    return row.method, row.recipe, tuple(sorted(changes.items()))
