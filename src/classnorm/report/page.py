"""One self-contained HTML page: no script, no network, readable on a phone, printable."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from classnorm.report.differences import MEANING, Comparison
from classnorm.report.draw import Style, draw, png
from classnorm.report.stream_results import STEPS, cost_table, step_table
from classnorm.report.summary import Group, best_group, stream_options_text, unseen_examples, worst_classes
from classnorm.report.tables import difference_table, html_dot, html_table, results_note, results_table
from classnorm.results.artifact import Artifact, Table
from classnorm.results.numbers import number_text


@dataclass(frozen=True)
class Section:
    """The results on one dataset or one stream."""

    name: str
    groups: Sequence[Group]
    comparison: Comparison | None
    """None for streams and for a single model."""
    plots: Mapping[str, bytes]
    """Name → PNG."""


def page(
    sections: Sequence[Section], styles: Mapping[str, Style], title: str, extra_sections: Sequence[str] = ()
) -> str:
    """The page of all results, followed by extra sections of HTML."""
    colors = {label: style.color for label, style in styles.items()}
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for section in sections:
        parts += (_stream_section if section.groups[0].is_stream else _section)(section, colors)
    meanings = dict(pair for section in sections for pair in section.groups[0].scores.values())
    words = "".join(f"<dt>{html.escape(short)}</dt><dd>{html.escape(text)}</dd>" for short, text in meanings.items())
    scores = f"<h2>What the scores mean</h2><p>Percent, averaged over classes.</p><dl>{words}</dl>"
    return html_document(title, [*parts, *extra_sections, scores if words else ""])


def html_document(title: str, parts: Sequence[str]) -> str:
    """A complete page with these parts as its body."""
    footer = "<footer>Made with classnorm, which never uses test scores to choose settings.</footer>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>{''.join(parts)}{footer}</body></html>\n"
    )


def _section(section: Section, colors: Mapping[str, str]) -> list[str]:
    groups, best = section.groups, best_group(section.groups)
    dataset = groups[0].results[0].document["dataset"]
    sizes, features = dataset["sizes"], dataset["provenance"].get("features", "")
    text = (
        f"{sizes['seen_classes']} seen and {sizes['unseen_classes']} unseen classes, {sizes['train_rows']} training "
        f"rows, {sizes['test_seen_rows']} + {sizes['test_unseen_rows']} test rows, {sizes['feature_dim']}-d {features} "
        "features."
    )
    return [
        f"<h2>{html.escape(section.name)}</h2><p>{html.escape(text)}</p>",
        _results(groups, colors),
        _differences(section.comparison, colors),
        _plots(section, "Seen against unseen classes", {"curve": "Seen–unseen curves"}),
        _plots(
            section,
            "Calibration",
            {
                "calibration": "U, S and H against the scale of the seen scores",
                "calibration-bias": "U, S and H against the bias of the seen scores",
            },
            "The scores of seen classes are multiplied by a scale or reduced by a bias. Solid: test; dashed: "
            "validation, if available. Dotted: the values in use, chosen on validation or set by hand.",
        ),
        _plots(section, "Accuracy by class", {"classes": "Accuracy of each class"}),
        _class_list(groups),
        _confusions(best),
        _gallery(best),
        _plots(section, "Training", {"training": "Training loss by epoch"}),
        _provenance(groups, colors),
    ]


def _stream_section(section: Section, colors: Mapping[str, str]) -> list[str]:
    groups = section.groups
    document = groups[0].results[0].document
    sizes = ", ".join(map(str, document["stream"]["tasks"]))
    inputs = f"images, together with the encoder {document['encoder']}" if document["encoder"] else "features"
    seeds = {tuple(result.document["seed"] for result in group.results) for group in groups}
    notes = ["After each task all classes compete, including those still to come."]
    if before := document["stream"]["part"][0]:
        notes.append(f"The first {before} tasks served to choose settings; the tasks below are numbered from 1.")
    if len(seeds) > 1:
        notes.append("The strategies ran with different seeds, and therefore on different orders of the classes.")
    split = document["stream"]["image_split"]
    text = f"Tasks of {sizes} classes, {split} image split, trained on {inputs}. {' '.join(notes)}"
    return [
        f"<h2>{html.escape(section.name)}</h2><p>{html.escape(text)}</p>",
        _results(groups, colors),
        _plots(
            section,
            "Task by task",
            {f"stream-{name}": meaning for name, (_, meaning) in STEPS.items()},
            "Lines: mean over seeds; bands: range of the seeds.",
        ),
        f"<h4>Budgets</h4>{html_table(cost_table(groups), colors)}",
        '<p class="note">Stored: what a strategy keeps for earlier tasks, like rows, importances or sums. '
        "Rows passed: rows that went through the learner in training, each as often as it did.</p>",
        "<h4>In numbers</h4>",
        *(_details(group, colors, html_table(step_table(group))) for group in groups),
        _plots(
            section,
            "Accuracy on each task after each task",
            {f"stream-matrix-{i}": f"Accuracy on each task, {g.label}" for i, g in enumerate(groups, start=1)},
            "Percent, all classes competing, mean over seeds. Below the line: tasks already learnt; a column that "
            "fades downwards is a task being forgotten. Above it: tasks still to come, known only from descriptors.",
        ),
        _provenance(groups, colors),
    ]


def _results(groups: Sequence[Group], colors: Mapping[str, str]) -> str:
    table = results_table(groups)
    marks = " <b>Best</b> and <u>second best</u> of each column." if table.is_ranked else ""
    return f'{html_table(table, colors)}<p class="note">{html.escape(results_note(groups))}.{marks}</p>'


def _differences(comparison: Comparison | None, colors: Mapping[str, str]) -> str:
    if comparison is None:
        return ""
    table = html_table(difference_table(comparison), colors)
    return f'<h3>Differences</h3>{table}<p class="note">{html.escape(MEANING)}</p>'


def _plots(section: Section, heading: str, captions: Mapping[str, str], text: str = "") -> str:
    images = [html_image(section.plots[name], caption) for name, caption in captions.items() if name in section.plots]
    if not images:
        return ""
    paragraph = f"<p>{html.escape(text)}</p>" if text else ""
    return f'<h3>{html.escape(heading)}</h3>{paragraph}<div class="plots">{"".join(images)}</div>'


def _class_list(groups: Sequence[Group]) -> str:
    """Every test class with its accuracy under each model, ordered by the best model, worst class first."""
    classes = best_group(groups).classes
    accuracies = [group.classes.accuracies.mean(axis=0) for group in groups]
    rows = [
        [classes.names[c], "seen" if classes.seen[c] else "unseen", str(classes.rows[c])]
        + [f"{accuracy[c]:.0f}" for accuracy in accuracies]
        for c in np.argsort(classes.accuracies.mean(axis=0), kind="stable")
        if classes.rows[c]
    ]
    table = html_table(Table.of("", ["class", "", "rows", *(g.label for g in groups)], rows), kind="tall")
    return f'<details class="classes"><summary>All {len(rows)} classes in numbers</summary>{table}</details>'


def _confusions(group: Group) -> str:
    rows = []
    for c in worst_classes(group.classes):
        confusions = ", ".join(f"{name} {share:.0f}\N{NO-BREAK SPACE}%" for name, share in c.taken_for)
        rows.append([c.name, "seen" if c.seen else "unseen", str(c.rows), f"{c.accuracy:.0f}", confusions])
    table = Table.of("", ["class", "", "rows", "correct, %", "predicted instead"], rows)
    return (
        f"<h3>Most confused classes</h3><p>The {len(rows)} classes with the lowest accuracy under "
        f"{html.escape(group.label)}, and the most frequent wrong predictions of their test rows, over all seeds.</p>"
        + html_table(table, kind="words")
    )


def _gallery(group: Group) -> str:
    """Unseen test images and the predictions of the group's first run; empty if the dataset has no images."""
    examples = unseen_examples(group)
    if examples is None:
        return ""
    cards, seed = [], html.escape(str(group.results[0].document["seed"]))
    for image, true, guess in zip(*examples, strict=True):
        right = true == guess
        verdict = "✓" if right else f"✗ {html.escape(guess)}"
        thumbnail = io.BytesIO()
        Image.fromarray(image).resize((96, 96), Image.Resampling.BICUBIC).save(thumbnail, "PNG")
        cards.append(
            f"<figure>{html_image(thumbnail.getvalue(), true)}<figcaption>{html.escape(true)}"
            f'<br><span class="{"right" if right else "wrong"}">{verdict}</span></figcaption></figure>'
        )
    return (
        "<h3>Unseen classes</h3><p>Test images of unseen classes. Below each: the true class and ✓, or ✗ and the "
        f"wrong prediction of {html.escape(group.label)} (seed {seed}); all classes "
        "compete.</p>"
        f'<div class="gallery">{"".join(cards)}</div>'
    )


def artifact_section(artifact: Artifact, more: str = "") -> str:
    """A section with the tables, plots and notes of an artifact, and more HTML before the notes."""
    parts = [f'<h2 id="{html.escape(artifact.name)}">{html.escape(artifact.title)}</h2>']
    parts.append(f"<p>{html.escape(artifact.text)}</p>")
    parts += [f"<h3>{html.escape(table.title)}</h3>{html_table(table)}" for table in artifact.tables]
    if artifact.plots:
        pictures = [html_image(png(draw(plot)), plot.title) for plot in artifact.plots]
        parts.append(f'<div class="plots">{"".join(pictures)}</div>')
    notes = [f'<p class="note">{html.escape(note)}</p>' for note in artifact.notes]
    return "".join([*parts, more, *notes])


def html_image(picture: bytes, text: str) -> str:
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'


def _provenance(groups: Sequence[Group], colors: Mapping[str, str]) -> str:
    parts = ["<h3>Provenance</h3>"]
    for group in groups:
        entries = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts(group).items())
        parts.append(_details(group, colors, f"<dl>{entries}</dl>"))
    return "".join(parts)


def _details(group: Group, colors: Mapping[str, str], content: str) -> str:
    """Content that folds out below the label of the group."""
    summary = f"{html_dot(colors[group.label])}{html.escape(group.label)}"
    return f"<details><summary>{summary}</summary>{content}</details>"


def facts(group: Group) -> dict[str, str]:
    """Name → value; if the runs of a group differ, all values in the order of the seeds."""
    values = {
        "command": _values(group, lambda d: d.get("command")),
        "dataset checksum": _values(group, lambda d: d["dataset"]["checksum"]),
        **(_stream_facts if group.is_stream else _run_facts)(group),
        "data": _values(group, lambda d: _pairs(d["dataset"]["provenance"])),
        "settings": _values(group, lambda d: _pairs(d["config"])),
        "seeds": ", ".join(str(result.document["seed"]) for result in group.results),
        "device": _values(group, lambda d: f"{d.get('device', 'unknown')}, {d.get('threads', '?')} threads"),
        "versions": _values(group, lambda d: _pairs(d["versions"])),
        "created": _values(group, lambda d: d.get("created")),
        "run folders": ", ".join(str(result.folder) for result in group.results),
    }
    return {name: value for name, value in values.items() if value}


def _run_facts(group: Group) -> dict[str, str]:
    return {
        "split": _values(group, lambda d: d["dataset"].get("split_version") or d["dataset"]["provenance"].get("split")),
        "split checksum": _values(group, lambda d: d["dataset"]["split_checksum"]),
        "calibration": _values(group, lambda d: d["calibration"]),
        "validation": _values(group, lambda d: _validation(d.get("validation"))),
        "parameters": _values(group, lambda d: d.get("parameters")),
    }


def _stream_facts(group: Group) -> dict[str, str]:
    return {
        "stream checksum": _values(group, lambda d: d["stream"]["checksum"]),
        "arrivals": _values(group, lambda d: stream_options_text(d["stream"])),
        "image split": _values(group, lambda d: d["stream"]["image_split"]),
        "encoder": _values(group, lambda d: d["encoder"] and f"{d['encoder']}, images of {d['image_size']} px"),
        "chosen": _values(group, lambda d: d.get("chosen") and _chosen(d)),
    }


def _chosen(document: dict[str, Any]) -> str:
    """The settings that a validation sequence chose, and the score it used."""
    chosen = {name: document["config"][name] for name in document["chosen"]["settings"]}
    return f"{_pairs(chosen)} by {document['chosen']['by']} on the {document['stream']['part'][0]} tasks before these"


def _values(group: Group, read: Callable[[dict[str, Any]], Any]) -> str:
    values = (read(result.document) for result in group.results)
    return "; ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))


def _pairs(mapping: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in mapping.items())


def _validation(record: dict[str, Any] | None) -> str:
    if record is None:
        return "none; the calibration was set by hand"
    if record["harmonic"] is None:
        return f"{record['splits']} {record['kind']} splits without rows of unseen classes"
    return f"H {number_text(record['harmonic'])} on {record['splits']} {record['kind']} splits"


# For desktop, phone, dark mode and print.
_STYLE = """
:root { color-scheme: light dark; --right: #007A5A; --wrong: #B84700; --line: #8885; }
@media (prefers-color-scheme: dark) { :root { --right: #2BC79A; --wrong: #FF9352; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3, p, dd, summary { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { max-width: 46rem; margin: .5rem 0; } .note { font-size: .875rem; opacity: .8; }
.scroll { overflow: auto; max-width: 100%; } .tall { max-height: 26rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child {
  text-align: left; white-space: normal; min-width: 8rem; position: sticky; left: 0; background: Canvas;
}
thead th { position: sticky; top: 0; background: Canvas; } thead th:first-child { z-index: 1; }
th.words, td.words { text-align: left; }
.words th, .words td { text-align: left; vertical-align: top; } .words td:last-child { white-space: normal; }
u { text-underline-offset: .2em; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .45em; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem; }
.plots img { width: 100%; max-width: 34rem; height: auto; background: white; border-radius: 4px; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: 1rem .5rem; }
figure { margin: 0; text-align: center; font-size: .8rem; line-height: 1.25; overflow-wrap: anywhere; }
figure img { width: 6rem; display: block; margin: 0 auto .3rem; background: white; border-radius: 4px; }
.right { color: var(--right); } .wrong { color: var(--wrong); } .weak { opacity: .85; }
.claims th:nth-child(-n+2), .claims td:nth-child(-n+2) { white-space: normal; }
nav ul { columns: 18rem; padding-left: 1.1rem; } nav a { color: inherit; }
details { margin: .5rem 0; } summary { cursor: pointer; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1rem; }
footer { margin-top: 2.5rem; font-size: .85rem; opacity: .75; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; } th, td { padding: .3rem .4rem; font-size: .9rem; }
  .words table, .words tbody { display: block; } .words thead { display: none; } .words td { overflow-wrap: anywhere; }
  .words tr { display: block; border-bottom: 1px solid var(--line); padding: .3rem 0; }
  .words td { border: 0; padding: 0 .6rem 0 0; display: inline-block; }
  .words td:last-child { display: block; white-space: normal; }
  .words td:nth-child(1) { font-weight: 600; } .words td:nth-child(3)::after { content: " rows"; }
  .words td:nth-child(4)::after { content: " % right"; } .words td:last-child::before { content: "→ "; }
}
@media print {
  :root { color-scheme: light; }
  body { max-width: none; margin: 0; font-size: 10pt; }
  .scroll, .tall { overflow: visible; max-height: none; }
  .plots { grid-template-columns: 1fr 1fr; } .classes { display: none; }
  th, td { font-size: 8pt; padding: .2rem .3rem; }
  details::details-content { content-visibility: visible; block-size: auto; }
  h2, h3 { break-after: avoid; } tr, img, figure, dt { break-inside: avoid; }
}
"""
