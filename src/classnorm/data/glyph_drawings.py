"""Drawn letters → images like those of `glyphs`: white on black, with strokes as wide as those of the fonts.

Where a letter is drawn matters, since many classes differ only in the position of a mark: a square canvas has the same
lines as the images of the fonts (`LINES`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from classnorm.data import glyphs
from classnorm.data.image_formats import displayed
from classnorm.errors import DataError

LINES = {"ascender": 0.253, "capital": 0.273, "small": 0.390, "baseline": 0.740, "descender": 0.891}
"""Heights of the lines of a canvas from its top, as a share of its side: those of the fonts in the images."""

_FINE = 4  # strokes are measured at this multiple of the resolution of the images
# Half the width of strokes, in pixels of the images: the first and last percentile of the training fonts, between which
# strokes are left as they are, and their median.
_THIN, _WIDE, _TARGET = 1.0, 2.9, 1.5


def letter(image: Image.Image) -> npt.NDArray[np.uint8]:
    """A picture of a letter as [SIDE, SIDE], like those of the dataset, which stay as they are."""
    ink, fine = _ink(image), _FINE * glyphs.SIDE
    if (longest := max(ink.size)) > fine:  # before it is made square: the square of an elongated picture is huge
        width, height = (max(1, round(side * fine / longest)) for side in ink.size)
        ink = ink.resize((width, height), Image.Resampling.BOX)
    square = ImageOps.pad(ink, (max(ink.size),) * 2, color=0)
    strokes = _with_font_strokes(_resized(square, fine))
    return _resized(square if strokes is None else strokes, glyphs.SIDE)


def _resized(square: Image.Image, side: int) -> npt.NDArray[np.uint8]:
    resampling = Image.Resampling.BOX if square.width > side else Image.Resampling.BICUBIC
    return np.asarray(square.resize((side, side), resampling))


def features(letters: npt.NDArray[np.uint8], preset: str) -> npt.NDArray[np.float32]:
    """[n, SIDE, SIDE] → the features of a preset of glyphs, [n, d_z]."""
    cell = glyphs.PRESETS[preset].cell
    if not len(letters):
        return np.zeros((0, (glyphs.SIDE // cell - 1) ** 2 * glyphs.ORIENTATIONS), dtype=np.float32)
    return glyphs.hog(letters, cell)


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
