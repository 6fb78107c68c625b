"""Tables of results for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from classnorm.report.summary import SCORES, Group

__all__ = ["markdown_table", "rows", "terminal_table"]


def rows(groups: Sequence[Group]) -> tuple[list[str], list[list[str]]]:
    """Header and body: one row per group."""
    header = ["model", "seeds", *(title for title, _ in SCORES.values()), "seconds"]
    body = [[g.label, str(len(g.results)), *(g.cell(name) for name in SCORES), g.cell("train_seconds")] for g in groups]
    return header, body


def terminal_table(groups: Sequence[Group], title: str) -> Table:
    header, body = rows(groups)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, caption_justify="left")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=i > 0, overflow="fold")
    for row in body:
        table.add_row(*row)
    table.caption = "percent, averaged over classes; mean ± std over seeds; seconds of the final training"
    return table


def markdown_table(groups: Sequence[Group]) -> str:
    header, body = rows(groups)
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in body]
    return "\n".join(lines) + "\n"
