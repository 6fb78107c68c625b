"""Results and artifacts as files: a page, tables in every format, plots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from classnorm.io.escapes import markdown_text, one_line
from classnorm.io.files import replacing, write_json
from classnorm.report import plots
from classnorm.report.differences import MEANING, Comparison, comparisons
from classnorm.report.draw import Style, draw, png
from classnorm.report.page import Section, artifact_section, page
from classnorm.report.stream_results import stream_plots
from classnorm.report.summary import Group, best_group, by_dataset, unseen_examples
from classnorm.report.tables import (
    csv_document,
    csv_table,
    difference_table,
    latex_table,
    markdown_table,
    results_note,
    results_table,
)
from classnorm.results.artifact import Artifact


def write_report(
    groups: Sequence[Group],
    folder: Path,
    title: str,
    compared: Mapping[str, Comparison] | None = None,
    artifacts: Sequence[Artifact] = (),
) -> list[Path]:
    """Write the page, the tables and the plots; return the paths.

    Runs and streams share the page and have separate CSV files. The plots of the first dataset are `curve.png`,
    `calibration.png` and so on; the names of the others end in the name of the dataset. Artifacts of `reproduce` and
    `analyze` become sections of the page.
    """
    styles = plots.group_styles(groups)
    compared = comparisons(groups) if compared is None else compared
    parts = by_dataset(groups)
    sections = [Section(name, part, compared.get(name), _plots(part, styles)) for name, part in parts.items()]
    more = [artifact_section(artifact) for artifact in artifacts]
    files: dict[str, str | bytes] = {"index.html": page(sections, styles, title, more)}
    if groups:
        files |= {"results.md": markdown_document(groups, compared), **csv_documents(groups)}
        files["results.tex"] = latex_document(groups, compared)
    return write_files(folder, files | _plot_files(sections))


def csv_documents(groups: Sequence[Group]) -> dict[str, str]:
    """File name → CSV, for runs and for streams."""
    kinds = {"results.csv": [g for g in groups if not g.is_stream], "streams.csv": [g for g in groups if g.is_stream]}
    return {name: csv_document(part) for name, part in kinds.items() if part}


def _plots(groups: Sequence[Group], styles: Mapping[str, Style]) -> dict[str, bytes]:
    """Name → PNG of each plot of one dataset or stream; plots without data are left out."""
    if groups[0].is_stream:
        return {plot.name: png(draw(plot, styles)) for plot in stream_plots(groups)}
    examples = unseen_examples(best_group(groups))
    training = plots.training_plot(groups)
    figures = {
        "curve": plots.seen_unseen_plot(groups, styles),
        "calibration": plots.calibration_plot(groups, styles, "scale"),
        "calibration-bias": plots.calibration_plot(groups, styles, "bias"),
        "classes": plots.class_plot(groups, styles),
        "training": draw(training, styles) if training.series else None,
        "unseen": None if examples is None else plots.example_grid(*examples),
    }
    return {name: png(figure) for name, figure in figures.items() if figure is not None}


def _plot_files(sections: Sequence[Section]) -> dict[str, str | bytes]:
    """File name → PNG, unique over the sections."""
    files: dict[str, str | bytes] = {}
    for number, section in enumerate(sections, start=1):
        slug = re.sub(r"[^A-Za-z0-9]+", "-", section.name).strip("-")
        suffix = "" if number == 1 else f"-{slug}"
        if any(f"{name}{suffix}.png" in files for name in section.plots):  # another name gives the same slug
            suffix += f"-{number}"
        files |= {f"{name}{suffix}.png": picture for name, picture in section.plots.items()}
    return files


def markdown_document(groups: Sequence[Group], compared: Mapping[str, Comparison]) -> str:
    """The tables of all datasets in Markdown."""
    parts = []
    for name, part in by_dataset(groups).items():
        table = results_table(part)
        marks = "; **best** and *second best* of each column" if table.is_ranked else ""
        parts += [f"## {markdown_text(name)}\n", markdown_table(table), f"{results_note(part)}{marks}.\n"]
        if name in compared:
            parts += [markdown_table(difference_table(compared[name])), f"{MEANING}\n"]
    return "\n".join(parts)


def latex_document(groups: Sequence[Group], compared: Mapping[str, Comparison]) -> str:
    r"""The tables of all datasets in LaTeX, for `\input`."""
    parts = ["% needs \\usepackage{booktabs}; best in bold, second best underlined\n"]
    for name, part in by_dataset(groups).items():
        parts.append(f"% {one_line(name)}\n{latex_table(results_table(part))}")
        if name in compared:
            parts.append(f"% {one_line(name)}, differences. {MEANING}\n{latex_table(difference_table(compared[name]))}")
    return "\n".join(parts)


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
    files |= {f"{plot.name}.png": png(draw(plot)) for plot in artifact.plots}
    paths = write_files(folder, files)
    write_json(folder / "data.json", artifact.data)
    artifact.save(folder)
    return [*paths, folder / "data.json"]
