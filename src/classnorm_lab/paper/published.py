"""The figures of the paper as printed, one CSV file per table."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from classnorm.results.artifact import Table

PAPER_DATASETS = ("SUN", "CUB", "AWA1", "AWA2")
FEATURES = "ResNet-101, as published"


@dataclass(frozen=True)
class Published:
    """A row of a table of the paper."""

    label: str
    cells: dict[str, str]
    """Column → printed text, empty for a dash."""

    def score(self, paper_dataset: str, short: str) -> float | None:
        """U, S or H on a dataset, in percent."""
        text = self.cells.get(f"{paper_dataset} {short}", "")
        return float(text) if text else None


@cache
def published(table: str) -> dict[str, Published]:
    """Label → row of a table."""
    text = files(__package__).joinpath("as_printed", f"{table}.csv").read_text(encoding="utf-8")
    return {row["row"]: Published(row.pop("row"), row) for row in map(dict, csv.DictReader(text.splitlines()))}


def published_columns(table: str) -> list[str]:
    return list(next(iter(published(table).values())).cells)


def published_table(table: str, title: str, first_column: str = "published") -> Table:
    """A table of the paper as printed."""
    rows = [[row.label, *(text or "–" for text in row.cells.values())] for row in published(table).values()]
    return Table.of(title, [first_column, *published_columns(table)], rows)
