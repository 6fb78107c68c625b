"""Drawn letters become images like those of the dataset."""

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import distance_transform_edt

from classnorm.data import glyph_images, glyphs
from classnorm.errors import DataError

SIDE = 480


def canvas(half, *, slant=0.0):
    """A vertical stroke of this half width in the middle of a canvas, true where it is."""
    y, x = np.mgrid[:SIDE, :SIDE]
    return (np.abs(x - SIDE / 2 + slant * (y - SIDE / 2)) <= half) & (y > SIDE * 0.27) & (y < SIDE * 0.74)


def gray(shape, ink=0, paper=255):
    return Image.fromarray(np.where(shape, ink, paper).astype(np.uint8))


def widths(letter):
    """The width of the stroke in each row of the middle, in pixels."""
    return letter[18:30].sum(axis=1) / 255


@pytest.mark.parametrize("half", [2, 5, 60])
def test_strokes_unlike_those_of_the_fonts_get_the_width_of_theirs(half):
    np.testing.assert_allclose(widths(glyph_images.drawn(gray(canvas(half)))), 3.0, atol=0.5)


@pytest.mark.parametrize("half", [12, 18, 24])
def test_strokes_like_those_of_the_fonts_stay_as_they_are(half):
    np.testing.assert_allclose(widths(glyph_images.drawn(gray(canvas(half)))), (2 * half + 1) / 10, atol=0.1)


def test_dark_on_light_light_on_dark_and_transparent_are_the_same_letter():
    shape = canvas(15, slant=0.3)
    transparent = np.zeros((SIDE, SIDE, 4), dtype=np.uint8)
    transparent[shape] = (30, 20, 40, 255)
    expected = glyph_images.drawn(gray(shape))
    np.testing.assert_array_equal(glyph_images.drawn(gray(shape, 255, 0)), expected)
    np.testing.assert_array_equal(glyph_images.drawn(Image.fromarray(transparent)), expected)
    np.testing.assert_array_equal(glyph_images.drawn(gray(shape).convert("RGB")), expected)


def test_thinner_strokes_lie_where_the_wide_ones_lay():
    wide = canvas(50, slant=0.4)
    letter = glyph_images.drawn(gray(wide))
    middle = distance_transform_edt(wide)
    center = np.argmax(middle[245])
    assert abs(np.average(np.arange(48), weights=letter[24]) + 0.5 - center / 10) < 0.5


def test_pictures_of_the_dataset_hardly_change():
    data = glyphs.load("light")
    rows = data.test_rows[::150]
    letters = np.stack([glyph_images.drawn(Image.fromarray(np.asarray(data.images[row]))) for row in rows])
    found = glyph_images.hog(letters, glyphs.PRESETS["light"].cell)
    cosines = (found * data.features[rows]).sum(axis=1) / np.linalg.norm(found, axis=1)
    assert np.median(cosines / np.linalg.norm(data.features[rows], axis=1)) > 0.999


def test_the_lines_of_the_canvas_are_those_of_the_fonts():
    for letter, line in (("x", "small"), ("h", "capital")):
        case = "small" if letter == "x" else "capital"
        picture = glyph_images.rendered(glyphs.character(f"latin {case} letter {letter}")) > 127
        rows = np.flatnonzero(picture.any(axis=1))
        assert rows[0] / glyph_images.SIDE == pytest.approx(glyph_images.LINES[line], abs=0.02)
        assert (rows[-1] + 1) / glyph_images.SIDE == pytest.approx(glyph_images.LINES["baseline"], abs=0.02)


@pytest.mark.parametrize("paper", [0, 255])
def test_an_empty_canvas_is_no_letter(paper):
    with pytest.raises(DataError, match="no letter"):
        glyph_images.drawn(Image.new("L", (SIDE, SIDE), paper))
