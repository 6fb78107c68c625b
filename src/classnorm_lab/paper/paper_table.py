"""Tables of the paper: measurements beside the published figures, verdicts on claims, contradictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from classnorm.report.summary import SCORES
from classnorm.results.artifact import Cell, Table, ranks
from classnorm_lab.paper.measured import SCORINGS, Measured, Scoring, Setting
from classnorm_lab.paper.published import FEATURES, published, published_table
from classnorm_lab.paper.reproduction import Reproduction, measure
from classnorm_lab.paper.table_specs import TABLES, TableSpec
from classnorm_lab.paper.variants import Variant
from classnorm_lab.paper.verdicts import Finding

_VALIDATION = "validation harmonic"


def measure_table(spec: TableSpec, reproduction: Reproduction) -> dict[str, Any]:
    """Run the variants of a table and return their numbers."""
    claimed = (variant for claim in spec.claims for variant in (claim.better, claim.worse))
    return measure(reproduction, spec.name, [*spec.variants, *claimed]).as_dict()


def table_artifact(spec: TableSpec, data: Mapping[str, Any]) -> Finding:
    """The table from its numbers, with the published figures beside them."""
    measured = Measured.of(data)
    tables = [_overview(spec, measured, scoring) for scoring in SCORINGS]
    tables += [_detail(spec, setting, measured) for setting in measured.available]
    if spec.of_the_paper:
        tables.append(published_table(spec.name, f"The paper's figures ({FEATURES})"))
    notes = [*spec.notes, *measured.missing, *_unmeasured(spec, measured)]
    return Finding(
        spec.name,
        spec.title,
        spec.conclusion,
        tables=tables,
        verdicts=[verdict for claim in spec.claims for verdict in claim.verdicts(measured)],
        notes=notes + contradictions(spec) if spec.of_the_paper else notes,
        data=dict(data),
    )


def _unmeasured(spec: TableSpec, measured: Measured) -> list[str]:
    """A note on rows that a table has got since it was measured."""
    labels = [
        variant.label
        for variant in spec.variants
        if any((variant.label, setting.name) not in measured.runs for setting in measured.available)
    ]
    return [f"Not measured yet in all settings: {', '.join(labels)}."] if labels else []


def _overview(spec: TableSpec, measured: Measured, scoring: Scoring) -> Table:
    """H in every setting, and the paper's on other features; a dash for a missing benchmark."""
    header, columns = ["measured here"], [[Cell(variant.label) for variant in spec.variants]]
    for setting in measured.settings:
        header.append(setting.label)
        missing = [Cell("–")] * len(spec.variants)
        columns.append(missing if setting.missing else _harmonic_cells(spec.variants, setting, measured, scoring))
    if spec.of_the_paper:
        for name in dict.fromkeys(setting.paper for setting in measured.settings if setting.paper):
            header.append(f"paper: {name} (ResNet-101)")
            rows = [published(spec.name).get(variant.paper_label) for variant in spec.variants]
            columns.append([Cell((row.cells.get(f"{name} H", "") if row else "") or "–") for row in rows])
    body = [list(row) for row in zip(*columns, strict=True)]
    return Table(f"H {SCORINGS[scoring]}, mean ± std over seeds", header, body)


def _detail(spec: TableSpec, setting: Setting, measured: Measured) -> Table:
    """All scores in one setting, U, S and H under both scorings, of the rows that were measured there."""
    sided: tuple[str, ...] = ("unseen", "seen", "harmonic")
    variants = [variant for variant in spec.variants if (variant.label, setting.name) in measured.runs]
    groups = [measured.runs[variant.label, setting.name] for variant in variants]
    shares = [group.values("schedule")[0] for group in groups]
    harmonic = {scoring: _harmonic_cells(variants, setting, measured, scoring) for scoring in SCORINGS}
    body = []
    for i, (variant, group) in enumerate(zip(variants, groups, strict=True)):
        row = [Cell(variant.label)]
        for scoring in SCORINGS:
            row += [Cell(group.cell(score, scoring=scoring)) for score in sided[:2]] + [harmonic[scoring][i]]
        row += [Cell(group.cell(score)) for score in SCORES if score not in sided]
        row.append(Cell(group.cell(_VALIDATION) if _VALIDATION in group.numbers else "–"))
        body.append([*row, Cell(str(group.n)), Cell("" if math.isnan(shares[i]) else _percent(shares[i]))])
    short = [SCORES[score][0] for score in sided]
    header = ["measured here", *short, *(f"{name}, s fixed" for name in short), "T1", "AUSUC", "H on validation"]
    header += ["seeds", "schedule"]
    if all(math.isnan(share) for share in shares):
        header, body = header[:-1], [row[:-1] for row in body]
    return Table(f"{setting.label}: percent, averaged over classes, mean ± std over seeds", header, body)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _harmonic_cells(variants: Sequence[Variant], setting: Setting, measured: Measured, scoring: Scoring) -> list[Cell]:
    """H of each variant, ranked; a dash for one that was not measured."""
    runs = [measured.runs.get((variant.label, setting.name)) for variant in variants]
    groups = [group for group in runs if group]
    places = iter(ranks([group.mean("harmonic", scoring) for group in groups]))
    return [Cell(group.cell("harmonic", scoring=scoring), next(places)) if group else Cell("–") for group in runs]


def contradictions(spec: TableSpec) -> list[str]:
    """Where the paper gives one model different figures in two tables, or two models the same figures."""
    entries = [
        (table.name, variant, published(table.name)[variant.paper_label])
        for table in TABLES.values()
        if table.of_the_paper
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
