"""Images of letters and their features.

Letters are rendered from matplotlib's fonts, and drawings are made like those: white on black, with strokes as wide as
those of the fonts. Where a letter is drawn matters, since many classes differ only in the position of a mark: a square
canvas has the same lines as the images of the fonts (`LINES`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont, ImageOps

from classnorm.data.decoding import displayed
from classnorm.errors import DataError

Images = npt.NDArray[np.uint8]  # [n_rows, height, width]
Floats = npt.NDArray[np.float32]

SIDE = 48  # image side in pixels
ORIENTATIONS = 8
VARIANTS = 2  # renderings per class and font
LINES = {"ascender": 0.253, "capital": 0.273, "small": 0.390, "baseline": 0.740, "descender": 0.891}
"""Heights of the lines of a canvas from its top, as a share of its side: those of the fonts in the images."""

_FINE = 4  # strokes are measured at this multiple of the resolution of the images
# Half the width of strokes, in pixels of the images: the first and last percentile of the training fonts, between which
# strokes are left as they are, and their median.
_THIN, _WIDE, _TARGET = 1.0, 2.9, 1.5


def font_file(name: str) -> Path:
    import matplotlib  # here, because the import takes longer than reading the cache

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


def rendered(char: str, font: str = "DejaVuSans") -> Images:
    """Draw a character in a font of matplotlib, [SIDE, SIDE]: white on black, upright."""
    side = 2 * SIDE
    canvas = _letter_canvas(char, _load_font(font, side), side)
    return np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def _load_font(name: str, side: int) -> ImageFont.FreeTypeFont:
    # Every Pillow build has the basic layout engine, and it does not substitute characters.
    return ImageFont.truetype(font_file(name), round(0.64 * side), layout_engine=ImageFont.Layout.BASIC)


def _letter_canvas(char: str, font: ImageFont.FreeTypeFont, side: int) -> Image.Image:
    canvas = Image.new("L", (side, side))
    # One baseline for all: many classes differ only in the position of the mark.
    ImageDraw.Draw(canvas).text((side / 2, 0.74 * side), char, fill=255, font=font, anchor="ms")
    return canvas


def variants(chars: Sequence[str], fonts: Sequence[str], seed: int) -> Images:
    """Draw [n_fonts · n_chars · VARIANTS, SIDE, SIDE]: white on black, slightly rotated, shifted and scaled."""
    side = 2 * SIDE  # twice the size, to reduce blur in the transformation
    rng = np.random.default_rng(seed)
    images = []
    for name in fonts:
        font = _load_font(name, side)
        for char in chars:
            canvas = _letter_canvas(char, font, side)
            for _ in range(VARIANTS):
                angle, scale = rng.uniform(-0.07, 0.07), 2 * rng.uniform(0.95, 1.07)
                cos, sin = scale * np.cos(angle), scale * np.sin(angle)
                x, y = side / 2 + rng.uniform(-2, 2, size=2) - np.array([cos + sin, cos - sin]) * SIDE / 2
                matrix = (cos, sin, x, -sin, cos, y)
                variant = canvas.transform((SIDE, SIDE), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
                images.append(np.asarray(variant))
    return np.stack(images)


def hog(images: Images, cell: int) -> Floats:
    """Compute histograms of oriented gradients [n_rows, (SIDE / cell − 1)² · ORIENTATIONS], non-negative.

    Each histogram covers 2 × 2 cells, with a stride of one cell, and is normalized by the energy of the 3 × 3
    histograms around it.
    """
    histograms = _orientation_histograms(images, cell)
    h = histograms[:, 1:] + histograms[:, :-1]
    h = h[:, :, 1:] + h[:, :, :-1]
    energy = np.pad((h**2).sum(axis=3), ((0, 0), (1, 1), (1, 1)))
    energy = np.lib.stride_tricks.sliding_window_view(energy, (3, 3), axis=(1, 2)).mean(axis=(3, 4))
    h /= np.sqrt(energy + cell**2)[..., None]  # the constant keeps weak gradients weak
    # In double precision and then rounded, they are the same to the bit on every processor, and so is the checksum.
    return np.round(h.reshape(len(h), math.prod(h.shape[1:])), 6).astype(np.float32)


def _orientation_histograms(images: Images, cell: int) -> npt.NDArray[np.float64]:
    """Sum the gradients of each cell by direction: [n_rows, SIDE / cell, SIDE / cell, ORIENTATIONS]."""
    grid = SIDE // cell
    pixels = np.pad(images, ((0, 0), (1, 1), (1, 1))) / 255
    dy = pixels[:, 2:, 1:-1] - pixels[:, :-2, 1:-1]
    dx = pixels[:, 1:-1, 2:] - pixels[:, 1:-1, :-2]
    strength = np.hypot(dx, dy)
    angle = np.arctan2(dy, dx) % np.pi * (ORIENTATIONS / np.pi)  # unsigned: both edges of a stroke count alike
    lower = np.floor(angle)
    upper_weight = strength * (angle - lower)
    index = np.arange(SIDE) // cell
    cells = (np.arange(len(images))[:, None, None] * grid + index[:, None]) * grid + index  # [n_rows, SIDE, SIDE]
    histograms = np.zeros(len(images) * grid * grid * ORIENTATIONS)
    for step, weight in ((0, strength - upper_weight), (1, upper_weight)):  # split between the two nearest bins
        bins = cells * ORIENTATIONS + (lower.astype(np.int64) + step) % ORIENTATIONS
        histograms += np.bincount(bins.ravel(), weights=weight.ravel(), minlength=len(histograms))
    return histograms.reshape(len(images), grid, grid, ORIENTATIONS)


def drawn(image: Image.Image) -> npt.NDArray[np.uint8]:
    """A picture of a letter as [SIDE, SIDE], like those of the dataset, which stay as they are."""
    ink, fine = _ink(image), _FINE * SIDE
    if (longest := max(ink.size)) > fine:  # before it is made square: the square of an elongated picture is huge
        width, height = (max(1, round(side * fine / longest)) for side in ink.size)
        ink = ink.resize((width, height), Image.Resampling.BOX)
    square = ImageOps.pad(ink, (max(ink.size),) * 2, color=0)
    strokes = _with_font_strokes(_resized(square, fine))
    return _resized(square if strokes is None else strokes, SIDE)


def _resized(square: Image.Image, side: int) -> npt.NDArray[np.uint8]:
    resampling = Image.Resampling.BOX if square.width > side else Image.Resampling.BICUBIC
    return np.asarray(square.resize((side, side), resampling))


def _ink(image: Image.Image) -> Image.Image:
    """White strokes on black; the background is what is at the border."""
    gray = ImageOps.autocontrast(displayed(image).convert("L"))
    pixels = np.asarray(gray)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return ImageOps.invert(gray) if np.median(border) > 127 else gray


def _with_font_strokes(fine: npt.NDArray[np.uint8]) -> Image.Image | None:
    """The letter with strokes made thinner or wider; None if they are like those of the fonts."""
    from scipy.ndimage import distance_transform_edt, maximum_filter

    inside = fine > 127
    if not inside.any() or inside.all():
        raise DataError("no letter there; draw dark strokes on a light background")
    depth = distance_transform_edt(inside)  # from each pixel of a stroke to its edge
    ridge = inside & (depth == maximum_filter(depth, 3))
    half = float(np.median(depth[ridge]))
    if _THIN * _FINE <= half <= _WIDE * _FINE:
        return None
    signed = np.where(inside, depth - 0.5, 0.5 - distance_transform_edt(~inside))
    shares = np.clip(signed + _TARGET * _FINE - half + 0.5, 0.0, 1.0)  # of each pixel that is covered
    return Image.fromarray(np.round(255 * shares).astype(np.uint8))
