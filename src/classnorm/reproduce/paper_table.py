"""Tables of the paper: measurements beside the published figures, verdicts on claims, contradictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from classnorm.report.summary import SCORES
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.published import FEATURES, PAPER_BENCHMARKS, published, published_table
from classnorm.reproduce.reproduction import Measurements, Reproduction, measure
from classnorm.reproduce.table_specs import TABLES, TableSpec
from classnorm.reproduce.variants import Variant
from classnorm.results.artifact import Artifact, Cell, Table, ranks
from classnorm.results.numbers import json_number

__all__ = ["contradictions", "table_artifact"]

_PAPER_COLUMN = "paper (ResNet-101)"


def table_artifact(spec: TableSpec, reproduction: Reproduction) -> Artifact:
    """Run the variants of a table, and set the published figures beside them."""
    claimed = (variant for claim in spec.claims for variant in (claim.better, claim.worse))
    runs = measure(reproduction, spec.name, [*spec.variants, *claimed])
    details = [_detail(spec, benchmark, runs) for benchmark in reproduction.available]
    paper = published_table(spec.name, f"The paper's figures ({FEATURES})")
    return Artifact(
        spec.name,
        spec.title,
        spec.conclusion,
        tables=[_overview(spec, reproduction.benchmarks, runs), *details, paper],
        verdicts=[claim.verdict(b, runs) for claim in spec.claims for b in reproduction.available],
        notes=reproduction.missing + contradictions(spec),
        data={"measured": _data(runs, reproduction.available)},
    )


def _overview(spec: TableSpec, benchmarks: Sequence[Benchmark], runs: Measurements) -> Table:
    """H on every benchmark, beside the paper's; a dash for a missing benchmark."""
    header, columns = ["measured here"], [[Cell(variant.label) for variant in spec.variants]]
    for benchmark in benchmarks:
        if benchmark.missing:
            header.append(benchmark.name)
            columns.append([Cell("–")] * len(spec.variants))
            continue
        header.append(benchmark.label)
        columns.append(_harmonic_cells(spec, benchmark, runs))
        if benchmark.name in PAPER_BENCHMARKS:
            header.append(_PAPER_COLUMN)
            rows = [published(spec.name).get(variant.paper_label) for variant in spec.variants]
            columns.append([Cell((row.cells.get(f"{benchmark.name} H", "") if row else "") or "–") for row in rows])
    reference = ", and H in the paper" if _PAPER_COLUMN in header else ""
    body = [list(row) for row in zip(*columns, strict=True)]
    return Table(f"H measured here, mean ± std over seeds{reference}", header, body)


def _detail(spec: TableSpec, benchmark: Benchmark, runs: Measurements) -> Table:
    """All scores on one benchmark."""
    body = []
    for variant, harmonic in zip(spec.variants, _harmonic_cells(spec, benchmark, runs), strict=True):
        group = runs[variant.label, benchmark.name]
        cells = [harmonic if score == "harmonic" else Cell(group.cell(score)) for score in SCORES]
        body.append([Cell(variant.label), *cells])
    title = f"{benchmark.label}: percent, averaged over classes, mean ± std over {len(group.results)} seeds"
    return Table(title, ["measured here", *(short for short, _ in SCORES.values())], body)


def _harmonic_cells(spec: TableSpec, benchmark: Benchmark, runs: Measurements) -> list[Cell]:
    groups = [runs[variant.label, benchmark.name] for variant in spec.variants]
    places = ranks([group.mean("harmonic") for group in groups])
    return [Cell(group.cell("harmonic"), place) for group, place in zip(groups, places, strict=True)]


def _data(runs: Measurements, benchmarks: Sequence[Benchmark]) -> list[dict[str, Any]]:
    labels = {benchmark.name: benchmark.label for benchmark in benchmarks}
    return [
        {"row": variant, "dataset": labels[name], "diverged": sum(result is None for result in group.results)}
        | {score: [json_number(value) for value in group.values(score)] for score in (*SCORES, "train_seconds")}
        for (variant, name), group in runs.items()
    ]


def contradictions(spec: TableSpec) -> list[str]:
    """Where the paper gives one model different figures in two tables, or two models the same figures."""
    entries = [
        (table.name, variant, published(table.name)[variant.paper_label])
        for table in TABLES.values()
        for variant in table.variants
        if variant.paper_label in published(table.name)
    ]
    notes = []
    for variant in spec.variants:
        row = published(spec.name).get(variant.paper_label)
        for table, other, other_row in entries:
            if row is None or (table, other.label) == (spec.name, variant.label):
                continue
            shared = [c for c in row.cells if row.cells[c] and other_row.cells.get(c)]
            differing = [c for c in shared if row.cells[c] != other_row.cells[c]]
            same_model = _settings(variant) == _settings(other)
            if same_model and differing and table != spec.name:
                values = ", ".join(f"{c} {row.cells[c]} and {other_row.cells[c]}" for c in differing[:3])
                notes.append(f"The paper on “{variant.label}”: table {spec.name} and table {table} differ ({values}).")
            elif not same_model and shared and not differing:
                notes.append(
                    f"The paper gives “{variant.label}” here the same figures as “{other.label}” in table {table}, "
                    "which is another model."
                )
    return list(dict.fromkeys(notes))


def _settings(variant: Variant) -> tuple[Any, ...]:
    """The settings that define the model, without the default γ = 5."""
    changes = {name: value for name, value in variant.changes.items() if (name, value) != ("gamma", 5.0)}
    return variant.method, variant.recipe, tuple(sorted(changes.items()))
