"""One self-contained HTML page: no script, no network, readable on a phone, printable."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from classnorm.report.class_results import worst_classes
from classnorm.report.differences import MEANING, Comparison
from classnorm.report.plots import Style
from classnorm.report.provenance import facts
from classnorm.report.streams import STEPS, step_table
from classnorm.report.stylesheet import STYLE
from classnorm.report.summary import Group, best_group, unseen_examples
from classnorm.report.tables import Cell, Table, difference_table, html_table, results_note, results_table

__all__ = ["Section", "html_document", "html_image", "page"]


@dataclass(frozen=True)
class Section:
    """All there is to say about one dataset, or one stream."""

    name: str
    groups: Sequence[Group]
    comparison: Comparison | None
    """None for streams."""
    pictures: Mapping[str, bytes]
    """What it shows → PNG file."""


def page(sections: Sequence[Section], look: Mapping[str, Style], title: str, more: Sequence[str] = ()) -> str:
    """The page for results on one or several datasets, with further sections after them."""
    colors = {label: style.color for label, style in look.items()}
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for section in sections:
        parts += (_stream_section if section.groups[0].is_stream else _section)(section, colors)
    meanings = dict(pair for section in sections for pair in section.groups[0].scores.values())
    words = "".join(f"<dt>{short}</dt><dd>{html.escape(text)}</dd>" for short, text in meanings.items())
    scores = f"<h2>What the scores mean</h2><p>Percent, averaged over classes.</p><dl>{words}</dl>"
    return html_document(title, [*parts, *more, *([scores] if words else [])])


def html_document(title: str, parts: Sequence[str]) -> str:
    """The frame of a page."""
    footer = "<footer>Made by classnorm, which chooses no setting by test scores.</footer>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>{''.join(parts)}{footer}</body></html>\n"
    )


def _section(section: Section, colors: Mapping[str, str]) -> list[str]:
    groups, best = section.groups, best_group(section.groups)
    return [
        _heading(section),
        _results(groups, colors),
        _differences(section.comparison, colors),
        _plots(section, "Seen against unseen classes", "", {"curve": "Seen–unseen curves"}),
        _plots(
            section,
            "Calibration",
            "What becomes of the scores as the seen ones are scaled, or lowered by a bias. Solid: test; dashed: "
            "validation, for runs that have it. Dotted: the values in use, chosen on validation or given by hand.",
            {
                "calibration": "U, S and H against the scale of the seen scores",
                "calibration-bias": "U, S and H against the bias of the seen scores",
            },
        ),
        _plots(section, "Classes one by one", "", {"classes": "Accuracy of the single classes"}),
        _class_list(groups),
        _confusions(best),
        _gallery(best),
        _plots(section, "Training", "", {"training": "Training loss by epoch"}),
        _provenance(groups, colors),
    ]


def _stream_section(section: Section, colors: Mapping[str, str]) -> list[str]:
    groups = section.groups
    document = groups[0].results[0].document
    sizes = ", ".join(map(str, document["stream"]["tasks"]))
    inputs = f"the images, with {document['encoder']} trained along" if document["encoder"] else "features"
    seeds = {tuple(result.document["seed"] for result in group.results) for group in groups}
    notes = ["After each task all classes compete, those still to come as well."]
    if before := document["stream"]["part"][0]:
        notes.append(f"The first {before} tasks chose settings and are left out; those reported are counted from 1.")
    if len(seeds) > 1:
        notes.append("The strategies ran with different seeds, that is, on different orders of the classes.")
    numbers = (_details(group, colors, html_table(step_table(group), {})) for group in groups)
    return [
        f"<h2>{html.escape(section.name)}</h2><p>Tasks of {sizes} classes, {document['stream']['image_split']} image "
        f"split, learnt from {html.escape(inputs)}. {' '.join(notes)}</p>",
        _results(groups, colors),
        _plots(
            section,
            "Task by task",
            "Lines: mean over seeds; bands: from the lowest to the highest seed.",
            {f"stream-{name}": meaning for name, (_, meaning) in STEPS.items()},
        ),
        "<h4>In numbers</h4>",
        *numbers,
        _plots(
            section,
            "Accuracy on each task after each task",
            "Percent, all classes competing, mean over seeds. Below the line: tasks already learnt; a column that "
            "fades downwards is a task being forgotten. Above it: tasks still to come, known by descriptions only.",
            {f"stream-matrix-{i}": f"Accuracy on each task, {g.label}" for i, g in enumerate(groups, start=1)},
        ),
        _provenance(groups, colors),
    ]


def _results(groups: Sequence[Group], colors: Mapping[str, str]) -> str:
    table = results_table(groups)
    marks = " <b>Best</b> and <u>second best</u> of each column." if table.is_ranked else ""
    return f'{html_table(table, colors)}<p class="note">{results_note(groups)}.{marks}</p>'


def _heading(section: Section) -> str:
    record = section.groups[0].results[0].document["dataset"]
    sizes = record["sizes"]
    return (
        f"<h2>{html.escape(section.name)}</h2><p>{sizes['seen_classes']} seen and {sizes['unseen_classes']} unseen "
        f"classes, {sizes['train_rows']} training rows, {sizes['test_seen_rows']} + {sizes['test_unseen_rows']} test "
        f"rows, {sizes['feature_dim']}-d {html.escape(record['provenance'].get('features', ''))} features.</p>"
    )


def _differences(comparison: Comparison | None, colors: Mapping[str, str]) -> str:
    if comparison is None or not comparison.differences:
        return ""
    table = html_table(difference_table(comparison), colors)
    return f'<h3>Differences</h3>{table}<p class="note">{html.escape(MEANING)}</p>'


def _plots(section: Section, heading: str, text: str, captions: Mapping[str, str]) -> str:
    pictures = [html_image(section.pictures[name], captions[name]) for name in captions if name in section.pictures]
    if not pictures:
        return ""
    words = f"<p>{html.escape(text)}</p>" if text else ""
    return f'<h3>{html.escape(heading)}</h3>{words}<div class="plots">{"".join(pictures)}</div>'


def _class_list(groups: Sequence[Group]) -> str:
    """Every test class with its accuracy under each model, the worst of the best model first."""
    classes = best_group(groups).classes
    accuracies = [group.classes.accuracies.mean(axis=0) for group in groups]
    order = np.argsort(best_group(groups).classes.accuracies.mean(axis=0), kind="stable")
    body = [
        [Cell(classes.names[c]), Cell("seen" if classes.seen[c] else "unseen"), Cell(str(classes.rows[c]))]
        + [Cell(f"{accuracy[c]:.0f}") for accuracy in accuracies]
        for c in order
        if classes.rows[c]
    ]
    table = html_table(Table("", ["class", "", "rows", *(g.label for g in groups)], body), {})
    table = table.replace('class="scroll"', 'class="scroll tall"', 1)
    return f'<details class="classes"><summary>All {len(body)} classes in numbers</summary>{table}</details>'


def _confusions(group: Group) -> str:
    worst = worst_classes(group.classes)
    lines = []
    for c in worst:
        taken_for = ", ".join(f"{html.escape(name)} {share:.0f}\N{NO-BREAK SPACE}%" for name, share in c.taken_for)
        side = "seen" if c.seen else "unseen"
        cells = (html.escape(c.name), side, str(c.rows), f"{c.accuracy:.0f}", taken_for)
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return (
        f"<h3>What the worst classes are taken for</h3><p>The {len(worst)} classes with the lowest accuracy under "
        f"{html.escape(group.label)}, and the classes most of their test rows go to, over all seeds.</p>"
        '<div class="scroll"><table class="words"><thead><tr><th>class</th><th></th><th>rows</th>'
        f"<th>right, %</th><th>taken for</th></tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _gallery(group: Group) -> str:
    """Unseen test images and what the group's first run said of them; nothing where the data has no images."""
    examples = unseen_examples(group)
    if examples is None:
        return ""
    cards = []
    for image, true, guess in zip(*examples, strict=True):
        right = true == guess
        verdict = "✓" if right else f"✗ {html.escape(guess)}"
        cards.append(
            f"<figure>{html_image(_thumbnail(image), true)}<figcaption>{html.escape(true)}"
            f'<br><span class="{"right" if right else "wrong"}">{verdict}</span></figcaption></figure>'
        )
    return (
        "<h3>Classes it never saw</h3><p>Test images of unseen classes with their true class, and beneath it ✓ or what "
        f"{html.escape(group.label)} (seed {group.results[0].document['seed']}) said instead; all classes compete.</p>"
        f'<div class="gallery">{"".join(cards)}</div>'
    )


def _thumbnail(image: npt.NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).resize((96, 96), Image.Resampling.BICUBIC).save(buffer, "PNG")
    return buffer.getvalue()


def html_image(picture: bytes, text: str) -> str:
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'


def _provenance(groups: Sequence[Group], colors: Mapping[str, str]) -> str:
    parts = ["<h3>Provenance</h3>"]
    for group in groups:
        entries = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts(group).items())
        parts.append(_details(group, colors, f"<dl>{entries}</dl>"))
    return "".join(parts)


def _details(group: Group, colors: Mapping[str, str], content: str) -> str:
    """What can be opened beneath the group's name."""
    dot = f'<span class="dot" style="background:{colors[group.label]}"></span>'
    return f"<details><summary>{dot}{html.escape(group.label)}</summary>{content}</details>"
