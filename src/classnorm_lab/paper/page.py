"""The page of a reproduction, generated from stored numbers: one JSON file per table or figure."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from classnorm.errors import DataError
from classnorm.io.documents import read_json
from classnorm.io.files import write_text
from classnorm.report.draw import draw, png
from classnorm.report.files import write_artifact, write_files
from classnorm.report.page import artifact_section, html_document
from classnorm.report.tables import html_table, markdown_table
from classnorm.results.artifact import ARTIFACT, Cell, Table
from classnorm_lab.paper.answer import short_answer
from classnorm_lab.paper.catalog import CATALOG
from classnorm_lab.paper.measured import SeedRuns
from classnorm_lab.paper.verdicts import RULE, Finding, Verdict

TITLE = "Class Normalization for (Continual)? Generalized Zero-Shot Learning: the paper, regenerated"
_INTRODUCTION = (
    "The tables and figures of the paper's zero-shot part, regenerated beside the published numbers. Numbers on "
    "different image features, which each table names, are not comparable."
)
_PREVIEW = "Quick run, with narrow models and few epochs: its verdicts show the output and are no evidence."
_FORMAT = "classnorm-numbers"
_TEXT = "introduction.md"  # what a person adds
_LOOK = {"holds": ("✓", "right"), "holds weakly": ("~", "weak"), "does not hold": ("✗", "wrong")}
"""Mark and CSS class of a judgement."""
_CLASSES = {f"{mark} {judgement}": css for judgement, (mark, css) in _LOOK.items()} | {"not measured": "weak"}


@dataclass(frozen=True)
class Numbers:
    """The numbers of a table or figure, and the arguments of the command that measured them."""

    name: str
    arguments: str
    numbers: Mapping[str, Any]

    def present(self) -> Finding:
        return CATALOG[self.name].present(self.numbers)


def write_numbers(folder: Path, made: Numbers) -> None:
    """Write NAME.json, with one record per line."""
    head = f'"format": "{_FORMAT}",\n"arguments": {_json(made.arguments)}'
    body = ",\n".join(f"{_json(key)}: {_lines(value)}" for key, value in made.numbers.items())
    write_text(folder / f"{made.name}.json", f'{{{head},\n"numbers": {{\n{body}\n}}}}\n')


def _json(value: Any) -> str:
    return json.dumps(_rounded(value), ensure_ascii=False, allow_nan=False)


def _rounded(value: Any) -> Any:
    """With 5 significant digits."""
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(_json, value)) + "\n]"
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"{_json(key)}: {_json(entry)}" for key, entry in value.items()) + "\n}"
    return _json(value)


def read_numbers(folder: Path) -> list[Numbers]:
    """The numbers in a folder, in the order of the catalog."""
    return [_read(folder / f"{name}.json", name) for name in CATALOG if (folder / f"{name}.json").is_file()]


def known_runs(folder: Path) -> dict[str, SeedRuns]:
    """The runs of all tables in a folder, by their keys; other numbers have none."""
    parts = ("runs", "transductive")
    stored = (entry for made in read_numbers(folder) for part in parts for entry in made.numbers.get(part, ()))
    return {entry["key"]: SeedRuns.stored(entry) for entry in stored if entry.get("key") and "row" in entry}


def known_streams(folder: Path) -> dict[str, Mapping[str, Any]]:
    """The arms of streams from images in a folder, by their keys."""
    stored = (entry for made in read_numbers(folder) for entry in made.numbers.get("runs", ()))
    return {entry["key"]: entry for entry in stored if entry.get("key") and "curves" in entry}


class NumbersDocument(TypedDict):
    """The numbers of a table or figure."""

    format: str
    arguments: str
    numbers: dict[str, Any]


def _read(path: Path, name: str) -> Numbers:
    document = read_json(path, NumbersDocument, f"measure it again with `classnorm reproduce {name}`")
    if document["format"] != _FORMAT:
        raise DataError(f"{path}: no numbers of `classnorm reproduce {name}`; measure it again")
    return Numbers(name, document["arguments"], document["numbers"])


@dataclass(frozen=True)
class Page:
    """A page in Markdown, made from the numbers in the folder of the same name."""

    path: Path
    numbers: Sequence[Numbers]
    findings: Sequence[Finding]
    """The tables and figures of these numbers."""

    @classmethod
    def read(cls, path: Path) -> Page:
        folder = path.with_suffix("")
        numbers = read_numbers(folder)
        if not numbers:
            raise DataError(f"{folder}: no numbers; measure a table with `docs={path}` first")
        return cls(path, numbers, [_present(made, folder) for made in numbers])

    @property
    def folder(self) -> Path:
        """Of the numbers, the plots and what a person wrote."""
        return self.path.with_suffix("")

    def text(self) -> str:
        file = self.folder / _TEXT
        written = file.read_text(encoding="utf-8") if file.is_file() else ""
        parts = (short_answer(self.findings), written, _commands(self.numbers, self.path))
        introduction = "\n\n".join(part.strip("\n") for part in parts if part)
        return markdown_page(self.findings, introduction, f"{self.folder.name}/{{name}}")

    def write(self) -> None:
        """Write the page and its plots."""
        for finding in self.findings:
            write_files(self.folder / finding.name, {f"{plot.name}.png": png(draw(plot)) for plot in finding.plots})
        write_text(self.path, self.text())


def _present(made: Numbers, folder: Path) -> Finding:
    try:
        return made.present()
    except (KeyError, TypeError, IndexError, ValueError) as error:
        file = folder / f"{made.name}.json"
        raise DataError(f"{file}: incomplete numbers of `classnorm reproduce {made.name}`; measure it again") from error


def _commands(found: Sequence[Numbers], path: Path) -> str:
    """The commands that measured the numbers, one for all with the same arguments, and the one that made the page."""
    groups: dict[str, list[str]] = {}
    for made in found:
        groups.setdefault(made.arguments, []).append(made.name)
    docs = f"--docs {path.parent.name}/{path.name}"
    lines = [f"classnorm reproduce {' '.join(names)} {arguments} {docs}" for arguments, names in groups.items()]
    lines.append(f"classnorm reproduce render {docs}")
    return "\n".join(["## How this page was made\n", "```console", *lines, "```\n"])


def write_pages(folder: Path, quick: bool) -> None:
    """Write index.html and reproduction.md with all findings below a folder, in the order of the catalog."""
    effort = "quick runs, a preview of the output" if quick else "full runs"
    introduction = f"{_INTRODUCTION} ({effort})"
    folders = [folder / name for name in CATALOG if (folder / name / ARTIFACT).is_file()]
    findings = [Finding.load(folder) for folder in folders]
    write_text(folder / "index.html", html_page(findings, introduction))
    write_text(folder / "reproduction.md", markdown_page(findings, introduction, "{name}"))


def as_preview(finding: Finding) -> Finding:
    """The finding of a quick run, whose verdicts say so wherever they are shown."""
    verdicts = [replace(v, measured=f"{v.measured} (quick run: no evidence)") for v in finding.verdicts]
    return replace(finding, verdicts=verdicts, notes=[*finding.notes, *([_PREVIEW] if verdicts else [])])


def write_finding(finding: Finding, folder: Path) -> None:
    """Write the files of an artifact and the verdicts."""
    write_artifact(finding, folder)
    if finding.verdicts:
        write_files(folder, {"claims.md": markdown_table(verdict_table(finding.verdicts))})


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


def html_page(findings: Sequence[Finding], introduction: str) -> str:
    """One HTML page with a table of contents."""
    entries = "".join(
        f'<li><a href="#{html.escape(a.name)}">{html.escape(a.title)}</a>{_tally(a.verdicts)}</li>' for a in findings
    )
    head = f"<h1>{html.escape(TITLE)}</h1><p>{html.escape(introduction)}</p>"
    contents = f"<nav><h3>Contents</h3><ul>{entries}</ul></nav>"
    rule = f'<p class="note">When does a claim hold? {html.escape(RULE)}</p>'
    return html_document(TITLE, [head, contents, rule, *map(_section, findings)])


def _tally(verdicts: Sequence[Verdict]) -> str:
    marks = [
        f'<span class="{css}">{n}\N{NO-BREAK SPACE}{mark}</span>'
        for judgement, (mark, css) in _LOOK.items()
        if (n := sum(v.verdict == judgement for v in verdicts))
    ]
    return f" ({', '.join(marks)})" if marks else ""


def _section(finding: Finding) -> str:
    """A section of the page: the artifact, with the verdicts before its notes."""
    if not finding.verdicts:
        return artifact_section(finding)
    table = verdict_table(finding.verdicts)
    for row in table.body:
        mark, _ = _LOOK.get(row[-1].text, ("", ""))
        row[-1] = Cell(f"{mark} {row[-1].text}".strip())
    claims = html_table(table, kind="claims", classes=_CLASSES)
    return artifact_section(finding, f"<h3>Do the claims hold here?</h3>{claims}")


def markdown_page(findings: Sequence[Finding], introduction: str, pictures: str) -> str:
    """One Markdown document; `pictures` is the folder of a finding's plots, with {name} for its name."""
    parts = [f"# {TITLE}\n", f"{introduction}\n"]
    verdicts = [verdict for finding in findings for verdict in finding.verdicts]
    if verdicts:
        parts += ["## All claims\n", f"{RULE}\n", markdown_table(tally_table(verdicts))]
    for finding in findings:
        parts += [f"## {finding.title} (`{finding.name}`)\n", f"**The paper:** {finding.text}\n"]
        for table in finding.tables:
            parts += [f"{table.title}\n", markdown_table(table)]
        folder = pictures.format(name=finding.name)
        parts += [f"![{plot.title}]({folder}/{plot.name}.png)\n" for plot in finding.plots]
        if finding.verdicts:
            parts += ["Do the claims hold here?\n", markdown_table(verdict_table(finding.verdicts))]
        parts += ["".join(f"- {note}\n" for note in finding.notes)]
    return "\n".join(parts).rstrip("\n") + "\n"
