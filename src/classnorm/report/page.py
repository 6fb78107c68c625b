"""One self-contained HTML page: no script, no network, readable on a phone, printable."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from classnorm.report.plots import png, seen_unseen_plot
from classnorm.report.summary import SCORES, Group, unseen_examples
from classnorm.report.tables import rows

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8885; }
th:first-child, td:first-child { text-align: left; }
tr.best td { font-weight: 600; }
img { max-width: 100%; height: auto; background: white; border-radius: 4px; }
img { width: 42rem; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: 1rem .5rem; }
figure { margin: 0; text-align: center; font-size: .8rem; line-height: 1.25; }
figure img { width: 6rem; display: block; margin: 0 auto .3rem; }
.right { color: #007A5A; } .wrong { color: #C14A00; }
@media (prefers-color-scheme: dark) { .right { color: #2BC79A; } .wrong { color: #FF9352; } }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1rem; overflow-wrap: anywhere; }
footer { margin-top: 2rem; font-size: .85rem; opacity: .75; }
@media print { body { max-width: none; margin: 0; } h2, img, table { break-inside: avoid; } }
"""


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
            f"<figure>{_image(_thumbnail(image), true)}<figcaption>{html.escape(true)}"
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
        f"<p>{_image(png(seen_unseen_plot(groups)), 'Seen–unseen curves')}</p>",
    ]
    parts.append(_gallery(max(groups, key=lambda group: group.mean("harmonic"))))
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


def _image(picture: bytes, text: str) -> str:
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'


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
