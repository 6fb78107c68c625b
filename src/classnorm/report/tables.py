"""Tables for the terminal, Markdown, CSV, LaTeX and HTML, from one description of each."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from classnorm.metrics.bootstrap import Difference
from classnorm.report.differences import Comparison
from classnorm.report.summary import SCORES, Group, score_digits
from classnorm.results.artifact import Cell, Table, ranks
from classnorm.results.numbers import signed

__all__ = [
    "Cell",
    "Table",
    "csv_document",
    "csv_table",
    "difference_table",
    "group_ranks",
    "html_table",
    "latex_table",
    "markdown_table",
    "results_note",
    "results_table",
    "terminal_table",
]

_TIMES = ("train_seconds", "fit_seconds")


def group_ranks(groups: Sequence[Group], name: str) -> list[int | None]:
    """The ranks of the groups' means; a model alone has none."""
    means = [group.mean(name) for group in groups]
    return [None] if len(groups) == 1 else ranks(means, score_digits(name), lower_is_better=name == "forgetting")


def results_table(groups: Sequence[Group], title: str = "") -> Table:
    """Mean ± standard deviation of each score, one row per group of one dataset."""
    scores = groups[0].scores
    rank = {name: group_ranks(groups, name) for name in scores}
    body = [
        [
            Cell(group.label),
            Cell(str(len(group.results))),
            *(Cell(group.cell(name), rank[name][i]) for name in scores),
            Cell(group.cell("train_seconds")),
        ]
        for i, group in enumerate(groups)
    ]
    first = "strategy" if groups[0].is_stream else "model"
    return Table(title, [first, "seeds", *(short for short, _ in scores.values()), "seconds"], body)


def results_note(groups: Sequence[Group]) -> str:
    """What the numbers of the results table are."""
    if groups[0].is_stream:
        return "Percent, forgetting a fraction; mean ± standard deviation over seeds; seconds of learning"
    return "Percent, mean ± standard deviation over seeds; seconds of the final training"


def difference_table(comparison: Comparison, title: str = "") -> Table:
    """ΔU, ΔS and ΔH with their intervals, one row per group other than the reference."""
    names = ("unseen", "seen", "harmonic")
    body = [
        [Cell(label), *(Cell(_interval(differences[name])) for name in names)]
        for label, differences in comparison.differences.items()
    ]
    return Table(title, [f"against {comparison.reference.label}", *(f"Δ{SCORES[name][0]}" for name in names)], body)


def _interval(difference: Difference) -> str:
    if math.isnan(difference.value):
        return "–"
    return f"{signed(difference.value)} [{signed(difference.low)}, {signed(difference.high)}]"


def terminal_table(groups: Sequence[Group], title: str) -> RichTable:
    """The results for a terminal, or for a file: the marks do not depend on colour or weight."""
    table = results_table(groups, title)
    rich = rich_table(table)
    marks = "; * best, + second best" if table.is_ranked else ""
    words = "percent, averaged over classes; mean ± std over seeds; seconds of the final training"
    if groups[0].is_stream:
        words = "percent, averaged over classes; forgetting a fraction; mean ± std over seeds; seconds of learning"
    rich.caption = f"{words}{marks}"
    return rich


def rich_table(table: Table) -> RichTable:
    rich = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, caption_justify="left")
    for i, name in enumerate(table.header):
        marked = any(row[i].rank for row in table.body)
        rich.add_column(name + "  " * marked, justify="left" if i == 0 else "right", no_wrap=i > 0, overflow="fold")
    for row in table.body:
        rich.add_row(*(_rich_cell(cell, any(r[i].rank for r in table.body)) for i, cell in enumerate(row)))
    return rich


def _rich_cell(cell: Cell, marked_column: bool) -> Text:
    mark = {1: " *", 2: " +"}.get(cell.rank or 0, "  ") if marked_column else ""
    style = {1: "bold", 2: "underline"}.get(cell.rank or 0, "")
    return Text(cell.text, style=style) + Text(mark)


def markdown_table(table: Table) -> str:
    """Best in bold, second best in italics."""
    marks = {None: "", 1: "**", 2: "*"}
    lines = ["| " + " | ".join(map(_markdown, table.header)) + " |", "| --- |" + " ---: |" * (len(table.header) - 1)]
    lines += [
        "| " + " | ".join(marks[cell.rank] + _markdown(cell.text) + marks[cell.rank] for cell in row) + " |"
        for row in table.body
    ]
    return "\n".join(lines) + "\n"


def _markdown(text: str) -> str:
    return "".join(f"\\{c}" if c in "|*_`<" else c for c in text)


def latex_table(table: Table) -> str:
    """A `tabular` for booktabs: best in bold, second best underlined."""
    marks = {None: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}
    rows = [" & ".join(marks[cell.rank].format(_latex(cell.text)) for cell in row) for row in table.body]
    lines = [
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        " & ".join(map(_latex, table.header)) + r" \\",
        r"\midrule",
        *(row + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = {
    "γ": r"$\gamma$",
    "χ": r"$\chi$",
    "²": r"$^2$",
    "√": r"$\surd$",
    "×": r"$\times$",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "·": r"$\cdot$",
    "Δ": r"$\Delta$",
    "[": "{[}",  # after a line break it would be an optional argument
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def html_table(table: Table, colors: Mapping[str, str]) -> str:
    """A table in a box of its own, which scrolls where the screen is narrow. Best in bold, second best underlined."""
    marks = {None: ("", ""), 1: ("<b>", "</b>"), 2: ("<u>", "</u>")}
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.header)
    lines = []
    for row in table.body:
        cells = [marks[cell.rank][0] + html.escape(cell.text) + marks[cell.rank][1] for cell in row]
        if row[0].text in colors:
            cells[0] = f'<span class="dot" style="background:{colors[row[0].text]}"></span>{cells[0]}'
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def csv_document(groups: Sequence[Group]) -> str:
    """One row per group of any dataset, every number in a column of its own; empty where it is undefined.

    The groups are of one kind: streams have columns of their own.
    """
    kinds, times = (("strategy",), _TIMES[:1]) if groups[0].is_stream else (("method", "recipe"), _TIMES)
    names = (*groups[0].scores, *times)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = [f"{name}_{statistic}" for name in names for statistic in ("mean", "std")]
    writer.writerow(["dataset", "model", *kinds, "seeds", *columns, "dataset_checksum", "split_checksum"])
    for group in groups:
        document = group.results[0].document
        numbers = []
        for name in names:
            numbers += [_number(group.mean(name)), _number(group.std(name)) if len(group.results) > 1 else ""]
        words = [group.dataset, group.label, *(document[kind] for kind in kinds), str(len(group.results))]
        checksums = [document["dataset"]["checksum"], document["dataset"]["split_checksum"]]
        writer.writerow([*words, *numbers, *checksums])
    return buffer.getvalue()


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def csv_table(table: Table) -> str:
    """The table as it is printed, one line a row."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(
        [table.header, *([cell.text for cell in row] for row in table.body)]
    )
    return buffer.getvalue()
