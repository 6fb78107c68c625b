"""Pictures as cameras, scanners and editors write them: what is read is what a viewer shows."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from classnorm.data import decoding
from classnorm.data.decoding import read_images
from classnorm.data.images import find_images, list_images

GRADIENT = np.add.outer(np.arange(40), 3 * np.arange(50)).astype(np.uint8)  # 0 … 186


def read(path: Path) -> np.ndarray | str:
    [picture] = read_images([path], [0], lambda image: np.asarray(image.convert("RGB")))
    return picture


def expected(gray: np.ndarray) -> np.ndarray:
    return np.repeat(gray[..., None], 3, axis=2)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_16_bits_are_scaled_not_clipped(tmp_path, suffix):
    path = tmp_path / f"deep{suffix}"
    Image.fromarray(GRADIENT.astype(np.uint16) * 257).save(path)
    np.testing.assert_array_equal(read(path), expected(GRADIENT))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bits_are_stretched_to_the_extremes_of_the_picture(tmp_path, dtype):
    path = tmp_path / "deep.tif"
    Image.fromarray((GRADIENT * 1e5).astype(dtype)).save(path)
    np.testing.assert_allclose(read(path), expected((GRADIENT * (255 / 186)).round()), atol=1)
    Image.fromarray(np.full((4, 4), 7, dtype=dtype)).save(path)
    assert not read(path).any()


def test_transparent_parts_are_white_whatever_is_stored_under_them(tmp_path):
    colours = np.dstack([expected(GRADIENT), np.where(GRADIENT > 90, 255, 0).astype(np.uint8)])
    shown = np.where(GRADIENT[..., None] > 90, expected(GRADIENT), 255)
    Image.fromarray(colours).save(tmp_path / "a.png")
    Image.fromarray(colours).save(tmp_path / "a.webp", lossless=True)
    for name in ("a.png", "a.webp"):
        np.testing.assert_array_equal(read(tmp_path / name), shown)


def test_a_palette_with_a_transparent_colour_is_on_white(tmp_path):
    image = Image.fromarray((GRADIENT > 90).astype(np.uint8)).convert("P")
    image.putpalette([0, 0, 0, 200, 30, 60])
    image.save(tmp_path / "a.png", transparency=0)
    image.save(tmp_path / "a.gif", transparency=0)
    for name in ("a.png", "a.gif"):
        np.testing.assert_array_equal(
            read(tmp_path / name), np.where(GRADIENT[..., None] > 90, [200, 30, 60], 255), err_msg=name
        )


def test_cmyk_is_shown_in_its_colours(tmp_path):
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "red.jpg", quality=100)
    red, green, blue = read(tmp_path / "red.jpg")[4, 4].astype(int)
    assert red > 240 and green < 15 and blue < 15


@pytest.mark.parametrize("suffix", [".gif", ".png", ".webp", ".tif"])
def test_of_an_animation_the_first_frame_counts(tmp_path, suffix):
    frames = [Image.new("L", (9, 9), shade).convert("RGB") for shade in (255, 0, 0)]
    frames[0].save(tmp_path / f"a{suffix}", save_all=True, append_images=frames[1:])
    assert read(tmp_path / f"a{suffix}").min() > 250


def test_raw_files_are_named_not_passed_over(tmp_path, write_image):
    write_image(tmp_path / "cat" / "a.png")
    for name in ("b.NEF", "c.dng"):
        Image.new("RGB", (8, 8)).save(tmp_path / "cat" / name, format="TIFF")  # they open as TIFF
    table = find_images(tmp_path)
    assert [Path(file).name for file in table.files] == ["a.png", "b.NEF", "c.dng"]
    assert len(list_images(tmp_path)) == 3
    for path in table.images[1:]:
        assert read(path) == "a raw camera file; convert it to JPEG, PNG or TIFF"


def test_heic_is_read_with_its_orientation(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    picture = Image.new("RGB", (64, 32), "white")
    picture.paste("red", (0, 0, 32, 32))
    picture.save(tmp_path / "a.heic", quality=100)
    pixels = read(tmp_path / "a.heic")
    assert pixels.shape == (32, 64, 3)
    assert abs(pixels[16, 8].astype(int) - [255, 0, 0]).max() < 30
    assert pixels[16, 56].min() > 240


def test_heic_without_its_reader_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.heic").write_bytes(b"....ftypheic")
    monkeypatch.setattr(decoding, "register_heif", lambda: False)
    assert read(tmp_path / "a.heic") == "HEIC needs pillow-heif; pip install 'classnorm[heif]'"


def test_a_huge_picture_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    Image.new("1", (3000, 2000)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)
    assert "more than 178 megapixels" in read(tmp_path / "a.png")
