"""From results to tables, plots and one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from classnorm.files import replacing, write_text
from classnorm.report.page import page
from classnorm.report.plots import example_grid, png, seen_unseen_plot
from classnorm.report.summary import SCORES, Group, group_results, unseen_examples
from classnorm.report.tables import markdown_table, terminal_table

__all__ = ["SCORES", "Group", "group_results", "markdown_table", "terminal_table", "write_report"]


def write_report(groups: Sequence[Group], folder: Path, title: str) -> list[Path]:
    """Write `index.html`, `results.md`, `curve.png` and, where there are images, `unseen.png`; return the paths."""
    pictures = {"curve.png": png(seen_unseen_plot(groups))}
    best = max(groups, key=lambda group: group.mean("harmonic"))
    if (examples := unseen_examples(best)) is not None:
        pictures["unseen.png"] = png(example_grid(*examples))
    for name, picture in pictures.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(picture)
    write_text(folder / "results.md", markdown_table(groups))
    write_text(folder / "index.html", page(groups, title))
    return [folder / name for name in ("index.html", "results.md", *pictures)]
