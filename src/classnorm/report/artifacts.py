"""Artifacts of reproductions and diagnoses as a page, as Markdown and as files."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from classnorm.io.escapes import one_line
from classnorm.io.files import replacing, write_json
from classnorm.report.draw import draw
from classnorm.report.page import html_document, html_image
from classnorm.report.plots import png
from classnorm.report.tables import csv_table, html_table, latex_table, markdown_table
from classnorm.results.artifact import Artifact, Cell, Table
from classnorm.results.verdicts import RULE, Verdict

_LOOK = {"holds": ("✓", "holds"), "holds weakly": ("~", "weak"), "does not hold": ("✗", "fails")}
_CLASSES = {f"{mark} {judgement}": css for judgement, (mark, css) in _LOOK.items()} | {"not measured": "weak"}


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write files by name, each atomically; return the paths."""
    for name, content in contents.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return [folder / name for name in contents]


def write_artifact(artifact: Artifact, folder: Path) -> list[Path]:
    """Write `artifact.json`, `data.json`, and a file for each table and plot; return the paths."""
    files: dict[str, str | bytes] = {}
    for number, table in enumerate(artifact.tables, start=1):
        suffix = "" if number == 1 else f"-{number}"
        files |= {f"table{suffix}.md": markdown_table(table), f"table{suffix}.csv": csv_table(table)}
        files[f"table{suffix}.tex"] = f"% {one_line(table.title)}\n{latex_table(table)}"
    if artifact.verdicts:
        files["claims.md"] = markdown_table(verdict_table(artifact.verdicts))
    files |= {f"{plot.name}.png": png(draw(plot)) for plot in artifact.plots}
    paths = write_files(folder, files)
    write_json(folder / "data.json", artifact.data)
    artifact.save(folder)
    return [*paths, folder / "data.json"]


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    header, rows = ["claim", "data (features)"], [[v.claim, v.dataset, v.measured, v.verdict] for v in verdicts]
    if any(v.scoring for v in verdicts):
        header.append("scored")
        rows = [[*row[:2], v.scoring, *row[2:]] for v, row in zip(verdicts, rows, strict=True)]
    return Table.of("Claims", [*header, "measured here", "verdict"], rows)


def tally_table(verdicts: Sequence[Verdict]) -> Table:
    """In how many cases each claim holds; a case is a dataset with its features and descriptors."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.claim, verdict.scoring), []).append(verdict)
    rows = [
        [claim, scoring or "–", *(str(sum(v.verdict == judgement for v in group) or "–") for judgement in _LOOK)]
        for (claim, scoring), group in groups.items()
    ]
    return Table.of("Claims", ["claim", "scored", *_LOOK], rows)


def reproduction_page(artifacts: Sequence[Artifact], title: str, introduction: str) -> str:
    """One HTML page with a table of contents."""
    entries = "".join(
        f'<li><a href="#{html.escape(a.name)}">{html.escape(a.title)}</a>{_tally(a.verdicts)}</li>' for a in artifacts
    )
    head = f"<h1>{html.escape(title)}</h1><p>{html.escape(introduction)}</p>"
    contents = f"<nav><h3>Contents</h3><ul>{entries}</ul></nav>"
    rule = f'<p class="note">When does a claim hold? {html.escape(RULE)}</p>'
    return html_document(title, [head, contents, rule, *artifact_sections(artifacts)])


def _tally(verdicts: Sequence[Verdict]) -> str:
    marks = [
        f'<span class="{css}">{n}\N{NO-BREAK SPACE}{mark}</span>'
        for judgement, (mark, css) in _LOOK.items()
        if (n := sum(v.verdict == judgement for v in verdicts))
    ]
    return f" ({', '.join(marks)})" if marks else ""


def artifact_sections(artifacts: Sequence[Artifact]) -> list[str]:
    """One section of HTML per artifact."""
    return ["".join(_section(artifact)) for artifact in artifacts]


def _section(artifact: Artifact) -> list[str]:
    parts = [f'<h2 id="{html.escape(artifact.name)}">{html.escape(artifact.title)}</h2>']
    parts.append(f"<p>{html.escape(artifact.text)}</p>")
    parts += [f"<h3>{html.escape(table.title)}</h3>{html_table(table)}" for table in artifact.tables]
    if artifact.plots:
        pictures = [html_image(png(draw(plot)), plot.title) for plot in artifact.plots]
        parts.append(f'<div class="plots">{"".join(pictures)}</div>')
    if artifact.verdicts:
        table = verdict_table(artifact.verdicts)
        for row in table.body:
            mark, _ = _LOOK.get(row[-1].text, ("", ""))
            row[-1] = Cell(f"{mark} {row[-1].text}".strip())
        parts.append(f"<h3>Do the claims hold here?</h3>{html_table(table, kind='claims', classes=_CLASSES)}")
    parts += [f'<p class="note">{html.escape(note)}</p>' for note in artifact.notes]
    return parts


def markdown_page(artifacts: Sequence[Artifact], title: str, introduction: str, pictures: str) -> str:
    """One Markdown document; `pictures` is the folder of an artifact's plots, with {name} for its name."""
    parts = [f"# {title}\n", f"{introduction}\n"]
    verdicts = [verdict for artifact in artifacts for verdict in artifact.verdicts]
    if verdicts:
        parts += ["## All claims\n", f"{RULE}\n", markdown_table(tally_table(verdicts))]
    for artifact in artifacts:
        parts += [f"## {artifact.title} (`{artifact.name}`)\n", f"**The paper:** {artifact.text}\n"]
        for table in artifact.tables:
            parts += [f"{table.title}\n", markdown_table(table)]
        folder = pictures.format(name=artifact.name)
        parts += [f"![{plot.title}]({folder}/{plot.name}.png)\n" for plot in artifact.plots]
        if artifact.verdicts:
            parts += ["Do the claims hold here?\n", markdown_table(verdict_table(artifact.verdicts))]
        parts += ["".join(f"- {note}\n" for note in artifact.notes)]
    return "\n".join(parts).rstrip("\n") + "\n"
