"""Tables, plots and verdicts of reproductions and diagnoses, as a page, as Markdown and as files."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from classnorm.files import replacing, write_json, write_text
from classnorm.report.draw import draw
from classnorm.report.page import html_document, html_image
from classnorm.report.plots import png
from classnorm.report.tables import csv_table, html_table, latex_table, markdown_table
from classnorm.results.artifact import Artifact, Table
from classnorm.results.verdicts import RULE, Verdict

__all__ = ["artifact_sections", "markdown_page", "reproduction_page", "verdict_table", "write_artifact"]

_LOOK = {"holds": ("✓", "holds"), "holds weakly": ("~", "weak"), "does not hold": ("✗", "fails")}


def write_artifact(artifact: Artifact, folder: Path) -> list[Path]:
    """Write `artifact.json`, `data.json`, and each table and plot as files of their own; return the paths."""
    files: dict[str, str] = {}
    for number, table in enumerate(artifact.tables, start=1):
        suffix = "" if number == 1 else f"-{number}"
        files |= {f"table{suffix}.md": markdown_table(table), f"table{suffix}.csv": csv_table(table)}
        files[f"table{suffix}.tex"] = f"% {table.title}\n{latex_table(table)}"
    if artifact.verdicts:
        files["claims.md"] = markdown_table(verdict_table(artifact.verdicts))
    for name, text in files.items():
        write_text(folder / name, text)
    for plot in artifact.plots:
        with replacing(folder / f"{plot.name}.png") as temporary:
            temporary.write_bytes(png(draw(plot)))
    write_json(folder / "data.json", artifact.data)
    artifact.save(folder)
    return [folder / name for name in (*files, *(f"{plot.name}.png" for plot in artifact.plots), "data.json")]


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    rows = [[v.claim, v.dataset, v.measured, v.verdict] for v in verdicts]
    return Table.of("Claims", ["claim", "data (features)", "measured here", "verdict"], rows)


def reproduction_page(artifacts: Sequence[Artifact], title: str, introduction: str) -> str:
    """One page with a table of contents."""
    entries = "".join(
        f'<li><a href="#{html.escape(a.name)}">{html.escape(a.title)}</a>{_tally(a.verdicts)}</li>' for a in artifacts
    )
    parts = [f"<h1>{html.escape(title)}</h1><p>{html.escape(introduction)}</p>"]
    parts.append(f"<nav><h3>Contents</h3><ul>{entries}</ul></nav>")
    parts.append(f'<p class="note">When does a claim hold? {html.escape(RULE)}</p>')
    return html_document(title, [*parts, *artifact_sections(artifacts)])


def _tally(verdicts: Sequence[Verdict]) -> str:
    counts = {kind: sum(v.verdict == kind for v in verdicts) for kind in _LOOK}
    marks = [
        f'<span class="{_LOOK[kind][1]}">{n}\N{NO-BREAK SPACE}{_LOOK[kind][0]}</span>'
        for kind, n in counts.items()
        if n
    ]
    return f" ({', '.join(marks)})" if marks else ""


def artifact_sections(artifacts: Sequence[Artifact]) -> list[str]:
    """A section of a page for each."""
    return [section for artifact in artifacts for section in _section(artifact)]


def _section(artifact: Artifact) -> list[str]:
    parts = [f'<h2 id="{html.escape(artifact.name)}">{html.escape(artifact.title)}</h2>']
    parts.append(f"<p>{html.escape(artifact.text)}</p>")
    parts += [f"<h3>{html.escape(table.title)}</h3>{html_table(table, {})}" for table in artifact.tables]
    if artifact.plots:
        pictures = [html_image(png(draw(plot)), plot.title) for plot in artifact.plots]
        parts.append(f'<div class="plots">{"".join(pictures)}</div>')
    if artifact.verdicts:
        parts.append(f"<h3>Do the claims hold here?</h3>{_verdicts(artifact.verdicts)}")
    if artifact.notes:
        parts.append("".join(f'<p class="note">{html.escape(note)}</p>' for note in artifact.notes))
    return parts


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    lines = []
    for v in verdicts:
        mark, look = _LOOK.get(v.verdict, ("", "weak"))
        cells = "".join(f"<td>{html.escape(text)}</td>" for text in (v.claim, v.dataset, v.measured))
        lines.append(f'<tr>{cells}<td class="{look}">{mark} {html.escape(v.verdict)}</td></tr>')
    head = "<th>claim</th><th>data (features)</th><th>measured here</th><th>verdict</th>"
    body = "".join(lines)
    return (
        f'<div class="scroll"><table class="claims"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def markdown_page(artifacts: Sequence[Artifact], title: str, introduction: str, pictures: str) -> str:
    """The same as a Markdown document; `pictures` is where the plots lie, with {name} for the artifact's."""
    parts = [f"# {title}\n", f"{introduction}\n"]
    every = [verdict for artifact in artifacts for verdict in artifact.verdicts]
    if every:
        parts += ["## All claims\n", f"{RULE}\n", markdown_table(verdict_table(every))]
    for artifact in artifacts:
        parts += [f"## {artifact.title} (`{artifact.name}`)\n", f"**The paper:** {artifact.text}\n"]
        for table in artifact.tables:
            parts += [f"{table.title}\n", markdown_table(table)]
        place = pictures.format(name=artifact.name)
        parts += [f"![{plot.title}]({place}/{plot.name}.png)\n" for plot in artifact.plots]
        parts += ["".join(f"- {note}\n" for note in artifact.notes)]
    return "\n".join(parts)
