"""Pictures as the input of training: the same tensors however they are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from classnorm.encoders import Preprocessing
from classnorm.errors import DataError
from classnorm.preparation import ImageInputs

PREPROCESSING = Preprocessing(18, 16, (127.0,) * 3, (128.0,) * 3)


@pytest.fixture
def files(tmp_path: Path, write_image: Callable[..., Path]) -> list[Path]:
    return [write_image(tmp_path / "in" / f"{i}.png", seed=i) for i in range(5)]


def test_a_batch_is_what_preprocessing_makes_of_its_rows(files: list[Path]) -> None:
    inputs = ImageInputs(files, PREPROCESSING)
    rows = torch.tensor([3, 0, 3])
    expected = PREPROCESSING([Image.open(files[row]) for row in rows])
    torch.testing.assert_close(inputs.batch(rows), expected, rtol=0, atol=0)
    assert (len(inputs), inputs.pixels.dtype, inputs.pixels.shape) == (5, np.uint8, (5, 16, 16, 3))


def test_pixels_in_memory_serve_as_files_do(files: list[Path]) -> None:
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    np.testing.assert_array_equal(ImageInputs(pixels, PREPROCESSING).pixels, ImageInputs(files, PREPROCESSING).pixels)


def test_gray_pixels_are_seen_in_three_channels() -> None:
    glyphs = np.random.default_rng(0).integers(0, 256, (4, 16, 16), dtype=np.uint8)
    inputs = ImageInputs(glyphs, PREPROCESSING.at(16))
    assert inputs.batch(torch.arange(4)).shape == (4, 3, 16, 16)


def test_a_cache_gives_the_same_from_a_mapped_file_and_is_decoded_once(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ImageInputs(files, PREPROCESSING)
    first = ImageInputs(files, PREPROCESSING, cache=tmp_path / "cache")
    monkeypatch.setattr("classnorm.preparation.image_inputs.read_images", lambda *_: pytest.fail("decoded again"))
    second = ImageInputs(files, PREPROCESSING, cache=tmp_path / "cache")
    for inputs in (first, second):
        assert isinstance(inputs.pixels, np.memmap)
        np.testing.assert_array_equal(inputs.pixels, plain.pixels)
    torch.testing.assert_close(second.batch(torch.tensor([4])), plain.batch(torch.tensor([4])), rtol=0, atol=0)


def test_a_cache_does_not_serve_changed_pictures(
    files: list[Path], tmp_path: Path, write_image: Callable[..., Path]
) -> None:
    before = ImageInputs(files, PREPROCESSING, cache=tmp_path / "cache").pixels
    write_image(files[2], seed=99)
    after = ImageInputs(files, PREPROCESSING, cache=tmp_path / "cache").pixels
    assert [bool((a == b).all()) for a, b in zip(before, after, strict=True)] == [True, True, False, True, True]


def test_a_picture_that_cannot_be_read_is_named_and_leaves_no_cache(files: list[Path], tmp_path: Path) -> None:
    files[3].write_bytes(b"broken")
    with pytest.raises(DataError, match=r"3\.png: not an image"):
        ImageInputs(files, PREPROCESSING, cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())
