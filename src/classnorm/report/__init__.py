"""Results as tables, plots and one self-contained HTML page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from classnorm.io.escapes import markdown_text, one_line
from classnorm.report import plots
from classnorm.report.artifacts import artifact_sections, write_files
from classnorm.report.differences import MEANING, Comparison, compare, reference_label
from classnorm.report.draw import draw
from classnorm.report.page import Section, page
from classnorm.report.stream_results import STEPS, mean_matrix, step_table, stream_plots, task_values
from classnorm.report.summary import (
    SCORES,
    STREAM_COSTS,
    STREAM_SCORES,
    Group,
    arrivals_text,
    best_group,
    by_dataset,
    group_results,
    unseen_examples,
)
from classnorm.report.tables import (
    csv_document,
    difference_table,
    latex_table,
    markdown_table,
    results_note,
    results_table,
    rich_table,
    terminal_table,
)
from classnorm.results.artifact import Artifact

__all__ = [
    "SCORES",
    "STEPS",
    "STREAM_COSTS",
    "STREAM_SCORES",
    "Comparison",
    "Group",
    "arrivals_text",
    "by_dataset",
    "comparisons",
    "csv_documents",
    "difference_table",
    "group_results",
    "latex_document",
    "markdown_document",
    "mean_matrix",
    "rich_table",
    "step_table",
    "task_values",
    "terminal_table",
    "write_report",
]


def comparisons(groups: Sequence[Group], against: str | None = None) -> dict[str, Comparison]:
    """Compare the models of each dataset with the one that `against` names, or with the best by H.

    Streams are left out: they store no predictions to resample.
    """
    runs = [group for group in groups if not group.is_stream]
    label = None if against is None else reference_label(runs, against)
    return {name: compare(part, label) for name, part in by_dataset(runs).items() if len(part) > 1}


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
    files: dict[str, str | bytes] = {"index.html": page(sections, styles, title, artifact_sections(artifacts))}
    if groups:
        files |= {"results.md": markdown_document(groups, compared), **csv_documents(groups)}
        files["results.tex"] = latex_document(groups, compared)
    return write_files(folder, files | _plot_files(sections))


def csv_documents(groups: Sequence[Group]) -> dict[str, str]:
    """File name → CSV, for runs and for streams."""
    kinds = {"results.csv": [g for g in groups if not g.is_stream], "streams.csv": [g for g in groups if g.is_stream]}
    return {name: csv_document(part) for name, part in kinds.items() if part}


def _plots(groups: Sequence[Group], styles: Mapping[str, plots.Style]) -> dict[str, bytes]:
    """Name → PNG of each plot of one dataset or stream; plots without data are left out."""
    if groups[0].is_stream:
        return {plot.name: plots.png(draw(plot, styles)) for plot in stream_plots(groups)}
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
    return {name: plots.png(figure) for name, figure in figures.items() if figure is not None}


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
