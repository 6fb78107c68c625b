"""Drawn letters: how often `classnorm serve` recognises letters of a font that is in no dataset, drawn on its canvas.

A letter of STIXGeneral is transformed on the lines of the canvas (small letters as high as the line for small ones,
capitals as the line for capitals), and sent as the page would send it: as its filled outline, and as strokes of a round
pen along the middle lines of the outline. The model, kernel prototypes on glyphs-light, was trained on sans-serif fonts
of another family. All 426 classes compete.

``python benchmarks/drawings.py`` draws 20 letters by seed, and all that the font has, for several pens.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import distance_transform_edt

from classnorm.data import glyph_images, glyphs, load
from classnorm.data.glyph_images import LINES
from classnorm.scoring import fit

SIDE = 384  # of the canvas
FONT = "STIXGeneral"


def outline(char: str, file: Path) -> np.ndarray:
    """The filled letter on the canvas, true where it is."""
    line, like = ("capital", "H") if char.isupper() else ("small", "x")
    probe = ImageFont.truetype(file, 1000, layout_engine=ImageFont.Layout.BASIC)
    height = -probe.getbbox(like, anchor="ls")[1] / 1000
    size = round((LINES["baseline"] - LINES[line]) * SIDE / height)
    font = ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)
    canvas = Image.new("L", (SIDE, SIDE))
    ImageDraw.Draw(canvas).text((SIDE / 2, LINES["baseline"] * SIDE), char, fill=255, font=font, anchor="ms")
    return np.asarray(canvas) > 127


def thinned(shape: np.ndarray) -> np.ndarray:
    """The middle lines of a shape, one pixel wide (Zhang and Suen, 1984)."""
    image = np.pad(shape, 1).astype(np.int8)
    changed = True
    while changed:
        changed = False
        for step in (0, 1):
            p = [np.roll(image, shift, (0, 1)) for shift in
                 ((1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1))]  # fmt: skip
            neighbours = sum(p)
            rises = sum((a == 0) & (b == 1) for a, b in zip(p, [*p[1:], p[0]], strict=True))
            one, two = ((p[0] * p[2] * p[4], p[2] * p[4] * p[6]), (p[0] * p[2] * p[6], p[0] * p[4] * p[6]))[step]
            gone = (image == 1) & (neighbours >= 2) & (neighbours <= 6) & (rises == 1) & (one == 0) & (two == 0)
            image[gone] = 0
            changed |= bool(gone.any())
    return image[1:-1, 1:-1] == 1


def drawn(shape: np.ndarray, width: float) -> np.ndarray:
    """Strokes of a round pen along the middle lines; the width is a share of the side."""
    return distance_transform_edt(~thinned(shape)) <= width * SIDE / 2


def picture(shape: np.ndarray) -> Image.Image:
    """Black on white, as the page sends it."""
    return Image.fromarray(np.where(shape, 0, 255).astype(np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--look", type=Path, help="write a picture of the letters as drawn and as the model sees them")
    arguments = parser.parse_args()
    data = load("glyphs-light")
    scorer = fit(data, method="kernel")
    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{FONT}.ttf"
    available = FT2Font(str(file)).get_charmap()
    classes = [name for name in scorer.class_names if ord(glyphs.character(name)) in available]
    some = set(np.random.default_rng(arguments.seed).permutation(len(classes))[: arguments.letters].tolist())
    is_some = np.array([i in some for i in range(len(classes))])
    is_seen = np.array([scorer.seen[scorer.class_names.index(name)] for name in classes])
    shapes = [outline(glyphs.character(name), file) for name in classes]
    ways = {"filled outlines": shapes}
    ways |= {f"pen of {width:g}": [drawn(shape, width) for shape in shapes] for width in (0.03, 0.075, 0.12)}
    print(f"{len(classes)} of {len(scorer.class_names)} classes are in {FONT}, {(~is_seen).sum()} of them unseen")
    print(f"top 1, top 5, known at reject 0.01 | {arguments.letters} letters | all | unseen ones among all")
    for way, images in ways.items():
        letters = np.stack([glyph_images.drawn(picture(image)) for image in images])
        rows = glyph_images.hog(letters, glyphs.PRESETS["light"].cell)
        top = scorer.top(rows, 5).indices
        right = np.array([scorer.class_names.index(name) for name in classes])[:, None] == top
        known = scorer.known(rows, 0.01)
        cells = []
        for part in (is_some, np.ones(len(classes), bool), ~is_seen):
            shares = right[part, 0].mean(), right[part].any(axis=1).mean(), known[part].mean()
            cells.append("  ".join(f"{share:4.0%}" for share in shares))
        print(f"{way:16s} | {' | '.join(cells)}")
        if arguments.look and way == "pen of 0.075":
            pairs = [np.vstack([np.asarray(picture(images[i]).resize((48, 48))), letters[i]]) for i in sorted(some)]
            Image.fromarray(np.hstack(pairs)).resize((48 * len(pairs) * 2, 192)).save(arguments.look)


if __name__ == "__main__":
    main()
