"""One self-contained HTML page: no script, no network, readable on a phone, printable."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from classnorm.report.plots import example_grid, png, seen_unseen_plot
from classnorm.report.summary import SCORES, Group
from classnorm.report.tables import rows

__all__ = ["examples_png", "page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8885; }
th:first-child, td:first-child { text-align: left; }
tr.best td { font-weight: 600; }
img { max-width: 100%; height: auto; background: white; border-radius: 4px; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1rem; overflow-wrap: anywhere; }
footer { margin-top: 2rem; font-size: .85rem; opacity: .75; }
@media print { body { max-width: none; margin: 0; } h2, img, table { break-inside: avoid; } }
"""


def examples_png(group: Group) -> bytes | None:
    """Unseen test images and what the group's first run said of them; None where the data has no images."""
    result = group.results[0]
    examples, predictions = result.arrays("examples"), result.arrays("predictions")
    if examples is None or predictions is None or not len(examples["position"]):
        return None
    names, at = predictions["class_names"], examples["position"]
    truth, guess = names[predictions["label"][at]].tolist(), names[predictions["top1"][at]].tolist()
    return png(example_grid(examples["image"], truth, guess))


def page(groups: Sequence[Group], title: str) -> str:
    """The page for results on one or several datasets."""
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for name in dict.fromkeys(group.dataset for group in groups):
        parts += _dataset_section(name, [group for group in groups if group.dataset == name])
    meaning = "".join(f"<dt>{short}</dt><dd>{html.escape(text)}</dd>" for short, text in SCORES.values())
    parts.append(f"<h2>What the scores mean</h2><p>Percent, averaged over classes.</p><dl>{meaning}</dl>")
    parts.append("<footer>Made by classnorm. Nothing was selected on test data.</footer>")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>{''.join(parts)}</body></html>\n"
    )


def _dataset_section(name: str, groups: Sequence[Group]) -> list[str]:
    document = groups[0].results[0].document
    sizes = document["dataset"]["sizes"]
    parts = [
        f"<h2>{html.escape(name)}</h2><p>{sizes['seen_classes']} seen and {sizes['unseen_classes']} unseen classes, "
        f"{sizes['train_rows']} training rows, {sizes['test_seen_rows']} + {sizes['test_unseen_rows']} test rows, "
        f"{sizes['feature_dim']}-d {html.escape(document['dataset']['provenance'].get('features', ''))} features.</p>",
        _table(groups),
        _figure(png(seen_unseen_plot(groups)), "Seen–unseen curves"),
    ]
    best = max(groups, key=lambda group: group.mean("harmonic"))
    if (picture := examples_png(best)) is not None:
        parts.append(
            f"<h3>Classes it never saw</h3><p>Test images of unseen classes and what {html.escape(best.label)} (seed "
            f"{best.results[0].document['seed']}) said; all classes compete.</p>"
            + _figure(picture, "Unseen test images")
        )
    parts.append(_provenance(groups))
    return parts


def _table(groups: Sequence[Group]) -> str:
    header, body = rows(groups)
    best = max(range(len(groups)), key=lambda i: groups[i].mean("harmonic"))
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    lines = [
        f"<tr{' class=best' if i == best else ''}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for i, row in enumerate(body)
    ]
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        "<p>Mean ± standard deviation over seeds; seconds of the final training.</p>"
    )


def _figure(picture: bytes, text: str) -> str:
    return f'<p><img alt="{html.escape(text)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}"></p>'


def _provenance(groups: Sequence[Group]) -> str:
    document = groups[0].results[0].document
    facts = {
        "dataset checksum": document["dataset"]["checksum"],
        "split checksum": document["dataset"]["split_checksum"],
        "versions": ", ".join(f"{name} {version}" for name, version in document["versions"].items()),
        **{f"calibration, {g.label}": ", ".join(r.document["calibration"] for r in g.results) for g in groups},
        **{f"command, {g.label}": g.results[0].document["command"] for g in groups if g.results[0].document["command"]},
    }
    entries = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd>" for key, value in facts.items())
    return f"<details><summary>Provenance</summary><dl>{entries}</dl></details>"
