"""From results to tables, plots and one self-contained HTML page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from classnorm.files import replacing, write_text
from classnorm.report.artifacts import artifact_sections
from classnorm.report.differences import MEANING, Comparison, compare, reference_label
from classnorm.report.draw import draw
from classnorm.report.page import Section, page
from classnorm.report.plots import (
    Style,
    calibration_plot,
    class_plot,
    example_grid,
    png,
    seen_unseen_plot,
    styles,
    training_plot,
)
from classnorm.report.streams import STEPS, mean_matrix, step_table, stream_plots, task_values
from classnorm.report.summary import (
    SCORES,
    STREAM_SCORES,
    Group,
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
    "STREAM_SCORES",
    "Comparison",
    "Group",
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
    """For each dataset its models against one of them: what `against` names, or the one with the best H.

    Streams are left out: they keep no predictions to resample.
    """
    runs = [group for group in groups if not group.is_stream]
    label = None if against is None else reference_label(runs, against)
    return {name: compare(part, label) for name, part in by_dataset(runs).items()}


def write_report(
    groups: Sequence[Group],
    folder: Path,
    title: str,
    compared: Mapping[str, Comparison] | None = None,
    artifacts: Sequence[Artifact] = (),
) -> list[Path]:
    """Write the page, the tables and the plots; return the paths.

    Runs and streams stand on one page; the CSV of streams is a file of its own. The plots of the first dataset are
    `curve.png`, `calibration.png` and so on; those of a further one carry its name. Artifacts of `reproduce` and
    `analyze` become sections of the page.
    """
    look = styles(groups)
    compared = comparisons(groups) if compared is None else compared
    parts = by_dataset(groups)
    sections = [Section(name, part, compared.get(name), _pictures(part, look)) for name, part in parts.items()]
    texts = {"index.html": page(sections, look, title, artifact_sections(artifacts))}
    if groups:
        texts |= {
            "results.md": markdown_document(groups, compared),
            **csv_documents(groups),
            "results.tex": latex_document(groups, compared),
        }
    pictures = _named(sections)
    for name, text in texts.items():
        write_text(folder / name, text)
    for name, picture in pictures.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(picture)
    return [folder / name for name in (*texts, *pictures)]


def csv_documents(groups: Sequence[Group]) -> dict[str, str]:
    """File name → tables of all runs, and of all streams."""
    kinds = {"results.csv": [g for g in groups if not g.is_stream], "streams.csv": [g for g in groups if g.is_stream]}
    return {name: csv_document(part) for name, part in kinds.items() if part}


def _pictures(groups: Sequence[Group], look: Mapping[str, Style]) -> dict[str, bytes]:
    """The plots of one dataset or stream, without those that have nothing to show."""
    if groups[0].is_stream:
        return {plot.name: png(draw(plot, look)) for plot in stream_plots(groups)}
    examples = unseen_examples(best_group(groups))
    figures = {
        "curve": seen_unseen_plot(groups, look),
        "calibration": calibration_plot(groups, look, "scale"),
        "calibration-bias": calibration_plot(groups, look, "bias"),
        "classes": class_plot(groups, look),
        "training": training_plot(groups, look),
        "unseen": None if examples is None else example_grid(*examples),
    }
    return {name: png(figure) for name, figure in figures.items() if figure is not None}


def _named(sections: Sequence[Section]) -> dict[str, bytes]:
    """File name → picture."""
    files: dict[str, bytes] = {}
    for number, section in enumerate(sections, start=1):
        slug = re.sub(r"[^A-Za-z0-9]+", "-", section.name).strip("-")
        suffix = "" if number == 1 else f"-{slug}"
        if any(f"{name}{suffix}.png" in files for name in section.pictures):  # another name came out the same
            suffix += f"-{number}"
        files |= {f"{name}{suffix}.png": picture for name, picture in section.pictures.items()}
    return files


def markdown_document(groups: Sequence[Group], compared: Mapping[str, Comparison]) -> str:
    """The tables of every dataset."""
    parts = []
    for name, part in by_dataset(groups).items():
        table = results_table(part)
        marks = "; **best** and *second best* of each column" if table.is_ranked else ""
        parts += [f"## {name}\n", markdown_table(table)]
        parts.append(f"{results_note(part)}{marks}.\n")
        if name in compared and compared[name].differences:
            parts += [markdown_table(difference_table(compared[name])), f"{MEANING}\n"]
    return "\n".join(parts)


def latex_document(groups: Sequence[Group], compared: Mapping[str, Comparison]) -> str:
    r"""The tables of every dataset, to be read with `\input`."""
    parts = ["% needs \\usepackage{booktabs}; best in bold, second best underlined\n"]
    for name, part in by_dataset(groups).items():
        parts += [f"% {name}\n{latex_table(results_table(part))}"]
        if name in compared and compared[name].differences:
            parts.append(f"% {name}, differences. {MEANING}\n{latex_table(difference_table(compared[name]))}")
    return "\n".join(parts)
