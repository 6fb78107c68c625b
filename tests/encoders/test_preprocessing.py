"""What is done to a picture, against the formula and against Pillow step by step."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from PIL import Image

from classnorm.encoders import Preprocessing

PLAIN = Preprocessing(resize=8, crop=8, mean=(127.0, 100.0, 50.0), std=(128.0, 2.0, 4.0))


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_a_picture_of_the_right_size_is_only_normalized() -> None:
    images = noise(3, 8, 8, 3)
    expected = torch.empty(3, 3, 8, 8)
    for channel, (mean, std) in enumerate([(127.0, 128.0), (100.0, 2.0), (50.0, 4.0)]):
        expected[:, channel] = (torch.tensor(images[..., channel].astype(np.float32)) - mean) / std
    torch.testing.assert_close(PLAIN(images), expected, rtol=0, atol=1e-6)


def test_the_short_side_is_resized_and_the_centre_cropped() -> None:
    image = Image.fromarray(noise(30, 50, 3))  # 50 wide
    resized = np.asarray(image.resize((26, 16), Image.Resampling.BICUBIC))  # 50 · 16 / 30 = 26.7
    preprocessing = Preprocessing(16, 12, (0.0,) * 3, (1.0,) * 3)
    np.testing.assert_array_equal(preprocessing.pixels(image), resized[2:14, 7:19])
    tall = preprocessing.pixels(image.transpose(Image.Transpose.TRANSPOSE))
    turned = preprocessing.pixels(image).transpose(1, 0, 2)
    np.testing.assert_allclose(tall, turned.astype(float), atol=2)  # Pillow rounds between width and height


def test_both_sides_are_resized_where_the_aspect_is_not_kept() -> None:
    image = Image.fromarray(noise(30, 50, 3))
    preprocessing = Preprocessing(16, 16, (0.0,) * 3, (1.0,) * 3, "bilinear", keep_aspect=False)
    np.testing.assert_array_equal(preprocessing.pixels(image), np.asarray(image.resize((16, 16), Image.BILINEAR)))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "LA"])
def test_pictures_of_any_mode_become_three_channels(mode: str) -> None:
    image = Image.fromarray(noise(20, 20, 3)).convert(mode)
    assert PLAIN([image]).shape == (1, 3, 8, 8)


def test_one_mean_means_one_channel() -> None:
    gray = Preprocessing(8, 8, (0.0,), (255.0,))
    images = noise(2, 8, 8)
    np.testing.assert_allclose(gray(images)[:, 0].numpy(), images / 255, rtol=1e-6)
    assert gray(noise(2, 9, 9, 3)).shape == (2, 1, 8, 8)


def test_another_size_keeps_the_share_of_the_picture() -> None:
    half = Preprocessing(256, 224, (0.0,), (1.0,)).at(112)
    assert (half.resize, half.crop) == (128, 112)
    assert half.at(None) is half


def test_its_record_survives_json() -> None:
    record = json.loads(json.dumps(asdict(PLAIN)))
    record |= {"mean": tuple(record["mean"]), "std": tuple(record["std"])}
    assert Preprocessing(**record) == PLAIN


def test_a_strip_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="2000 × 1 px is too elongated"):
        PLAIN.pixels(Image.new("RGB", (2000, 1)))
