"""Tables of results, and every `Table` as terminal output, Markdown, CSV, LaTeX or HTML."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from classnorm.io.escapes import csv_text, markdown_text, one_line, printable
from classnorm.metrics.bootstrap import Difference
from classnorm.report.differences import Comparison
from classnorm.report.summary import SCORES, STREAM_COSTS, Group, score_digits
from classnorm.results.artifact import Cell, Table, ranks
from classnorm.results.numbers import signed


def group_ranks(groups: Sequence[Group], name: str) -> list[int | None]:
    """The ranks of the means; None for a single group."""
    means = [group.mean(name) for group in groups]
    return [None] if len(groups) == 1 else ranks(means, score_digits(name), lower_is_better=name == "forgetting")


def results_table(groups: Sequence[Group], title: str = "") -> Table:
    """Mean ± standard deviation of each score, one row per group of one dataset."""
    scores = groups[0].scores
    ranks_by_score = {name: group_ranks(groups, name) for name in scores}
    body = []
    for i, group in enumerate(groups):
        cells = [Cell(group.cell(name), ranks_by_score[name][i]) for name in scores]
        body.append([Cell(group.label), Cell(str(len(group.results))), *cells, Cell(group.cell("train_seconds"))])
    first = "strategy" if groups[0].is_stream else "model"
    return Table(title, [first, "seeds", *(short for short, _ in scores.values()), "seconds"], body)


def results_note(groups: Sequence[Group]) -> str:
    """The units of the results table, as a caption."""
    if groups[0].is_stream:
        return "Percent, averaged over classes; forgetting a fraction; mean ± std over seeds; seconds of training"
    return "Percent, averaged over classes; mean ± std over seeds; seconds of the final training"


def difference_table(comparison: Comparison) -> Table:
    """ΔU, ΔS and ΔH with their intervals, one row per group except the reference."""
    names = ("unseen", "seen", "harmonic")
    rows = [[label, *(_interval(scores[name]) for name in names)] for label, scores in comparison.differences.items()]
    return Table.of("", [f"against {comparison.reference.label}", *(f"Δ{SCORES[name][0]}" for name in names)], rows)


def _interval(difference: Difference) -> str:
    if math.isnan(difference.value):
        return "–"
    return f"{signed(difference.value)} [{signed(difference.low)}, {signed(difference.high)}]"


def terminal_table(groups: Sequence[Group], title: str) -> RichTable:
    """The results table for a terminal, with a caption."""
    table = results_table(groups, title)
    rich = rich_table(table)
    rich.caption = results_note(groups) + ("; * best, + second best" if table.is_ranked else "")
    return rich


def rich_table(table: Table) -> RichTable:
    """The table for a terminal or a plain text file: ranks show without colour or weight."""
    rich = RichTable(title=_terminal(table.title), title_justify="left", box=box.SIMPLE_HEAD, caption_justify="left")
    ranked = [any(row[i].rank for row in table.body) for i in range(len(table.header))]
    for i, (name, words) in enumerate(zip(table.header, table.has_words, strict=True)):
        # Where the table is too wide, the widest columns wrap.
        rich.add_column(_terminal(name + "  " * ranked[i]), justify="left" if words else "right", overflow="fold")
    styles, marks = {None: "", 1: "bold", 2: "underline"}, {None: "  ", 1: " *", 2: " +"}
    for row in table.body:
        cells = zip(row, ranked, strict=True)
        rich.add_row(*(_terminal(c.text, styles[c.rank]) + Text(marks[c.rank] * marked) for c, marked in cells))
    return rich


def _terminal(text: str, style: str = "") -> Text:
    """Text without markup and without control characters."""
    return Text(printable(one_line(text)), style)


def markdown_table(table: Table) -> str:
    """The table in Markdown: best in bold, second best in italics."""
    marks = {None: "", 1: "**", 2: "*"}
    lines = [
        "| " + " | ".join(map(markdown_text, table.header)) + " |",
        "|" + "".join(" --- |" if words else " ---: |" for words in table.has_words),
    ]
    lines += [
        "| " + " | ".join(marks[cell.rank] + markdown_text(cell.text) + marks[cell.rank] for cell in row) + " |"
        for row in table.body
    ]
    return "\n".join(lines) + "\n"


def latex_table(table: Table) -> str:
    """A `tabular` for booktabs: best in bold, second best underlined."""
    marks = {None: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}
    rows = (" & ".join(marks[cell.rank].format(_latex(cell.text)) for cell in row) for row in table.body)
    lines = [
        rf"\begin{{tabular}}{{{''.join('l' if words else 'r' for words in table.has_words)}}}",
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
    "[": "{[}",  # LaTeX would read it as an optional argument after a line break
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in printable(one_line(text)))


def html_table(table: Table, colors: Mapping[str, str] = {}, kind: str = "", classes: Mapping[str, str] = {}) -> str:
    """The table in a box of CSS class `kind`, which scrolls on narrow screens: best in bold, second best underlined.

    `colors` and `classes` map the text of a cell to the colour of a dot before it and to its CSS class.
    """
    marks = {None: "{}", 1: "<b>{}</b>", 2: "<u>{}</u>"}
    words = ["words" if has_words else "" for has_words in table.has_words]
    head = "".join(f"<th{_css(css)}>{html.escape(name)}</th>" for name, css in zip(table.header, words, strict=True))
    rows = ""
    for row in table.body:
        rows += "<tr>"
        for cell, column in zip(row, words, strict=True):
            css = _css(f"{column} {classes.get(cell.text, '')}".strip())
            text = marks[cell.rank].format(html.escape(cell.text))
            rows += f"<td{css}>{html_dot(colors.get(cell.text))}{text}</td>"
        rows += "</tr>"
    return f'<div class="scroll {kind}"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _css(classes: str) -> str:
    return f' class="{classes}"' if classes else ""


def html_dot(color: str | None) -> str:
    """A dot in the colour of a model; nothing without a colour."""
    return f'<span class="dot" style="background:{color}"></span>' if color else ""


def csv_document(groups: Sequence[Group]) -> str:
    """One row per group, with mean and standard deviation in separate columns; undefined numbers are empty.

    All groups are runs of methods, or all are streams.
    """
    keys, times = ["method", "recipe"], ["train_seconds", "fit_seconds"]
    if groups[0].is_stream:
        keys, times = ["strategy"], list(STREAM_COSTS)
    names = [*groups[0].scores, *times]
    columns = [f"{name}_{statistic}" for name in names for statistic in ("mean", "std")]
    rows = []
    for group in groups:
        document = group.results[0].document
        row = [group.dataset, group.label, *(document[key] for key in keys), str(len(group.results))]
        for name in names:
            row += [_number(group.mean(name)), _number(group.std(name)) if len(group.results) > 1 else ""]
        rows.append([*row, document["dataset"]["checksum"], document["dataset"]["split_checksum"]])
    header = ["dataset", "model", *keys, "seeds", *columns, "dataset_checksum", "split_checksum"]
    return csv_table(Table.of("", header, rows))


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def csv_table(table: Table) -> str:
    """The texts of the table as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([csv_text(cell.text) for cell in row] for row in table.body)
    return buffer.getvalue()
