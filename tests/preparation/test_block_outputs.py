"""Frozen blocks of an encoder, whose outputs are computed once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from classnorm.encoders import Encoder, load_encoder
from classnorm.errors import ConfigError
from classnorm.preparation import BlockOutputs, ImageInputs
from classnorm.preparation.image_inputs import split_encoder

ROWS = torch.tensor([3, 0, 4])


def pixels(size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, size, size, 3), dtype=np.uint8)


def outputs_of(encoder: Encoder, n: int, folder: Path) -> tuple[nn.Module, BlockOutputs, ImageInputs]:
    images = ImageInputs(pixels(encoder.size), encoder.preprocessing)
    later, outputs = BlockOutputs.of(images, encoder, n, folder)
    return later.eval(), outputs, images


@pytest.mark.parametrize(("name", "size", "n"), [("convnet", 32, 2), ("efficientnet-lite0", 64, 12)])
def test_the_later_blocks_make_of_them_what_the_whole_encoder_makes_of_images(
    tmp_path: Path, name: str, size: int, n: int
) -> None:
    if name.startswith("efficientnet"):
        pytest.importorskip("efficientnet_lite_pytorch")
    encoder = load_encoder(name, size)
    later, outputs, images = outputs_of(encoder, n, tmp_path)
    with torch.inference_mode():
        features, expected = later(outputs.batch(ROWS)), encoder.module.eval()(images.batch(ROWS))
    # 11 bits of float16, through some layers
    torch.testing.assert_close(features, expected, rtol=0.02, atol=0.01 * float(expected.abs().max()))
    assert outputs.outputs.dtype == np.float16 and len(outputs) == 5


def test_they_are_computed_once_and_for_each_network_and_number_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    encoder = load_encoder("convnet", 32)
    outputs_of(encoder, 2, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(BlockOutputs, "_compute", lambda *_: pytest.fail("computed again"))
        outputs_of(encoder, 2, tmp_path)
    outputs_of(encoder, 1, tmp_path)
    outputs_of(load_encoder("convnet", 32), 2, tmp_path)  # other random weights
    assert len(list(tmp_path.glob("blocks-*.npy"))) == 3


def test_half_of_the_augmented_rows_are_those_of_mirror_images(tmp_path: Path) -> None:
    encoder = load_encoder("convnet", 32)
    _, outputs, images = outputs_of(encoder, 2, tmp_path)
    rows = torch.arange(5).repeat(20)
    made = outputs.augmented(rows, torch.Generator().manual_seed(0))
    torch.testing.assert_close(made, outputs.augmented(rows, torch.Generator().manual_seed(0)), rtol=0, atol=0)
    frozen, _ = split_encoder(encoder, 2)
    mirrored = frozen(images.batch(torch.arange(5)).flip(-1)).half().float()
    plain = outputs.batch(torch.arange(5))
    is_plain = torch.tensor([torch.equal(x, plain[row]) for x, row in zip(made, rows, strict=True)])
    is_mirrored = [torch.allclose(x, mirrored[row], atol=1e-2) for x, row in zip(made, rows, strict=True)]
    assert bool((is_plain ^ torch.tensor(is_mirrored)).all())
    assert 30 < int(is_plain.sum()) < 70


def test_images_are_mirrored_and_shifted_by_the_generator() -> None:
    encoder = load_encoder("convnet", 32)
    images = ImageInputs(pixels(32), encoder.preprocessing)
    rows = torch.arange(5).repeat(8)
    one, same, other = (images.augmented(rows, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert one.shape == (40, 3, 32, 32) and torch.equal(one, same) and not torch.equal(one, other)
    centre = images.batch(rows)
    found = 0
    for made, image in zip(one, centre, strict=True):
        # the part that no border reaches: some shift of up to 4 pixels of the image or of its mirror image
        window = made[:, 8:24, 8:24]
        found += any(
            torch.equal(window, side[:, 8 + y : 24 + y, 8 + x : 24 + x])
            for side in (image, image.flip(-1))
            for y in range(-4, 5)
            for x in range(-4, 5)
        )
    assert found == 40


@pytest.mark.parametrize("n", [-1, 4])
def test_a_number_of_blocks_that_leaves_none_is_refused(n: int) -> None:
    with pytest.raises(ConfigError, match="convnet has 4 blocks, so it must be 1 to 3"):
        split_encoder(load_encoder("convnet", 32), n)


def test_a_network_that_cannot_be_taken_apart_is_refused() -> None:
    encoder = load_encoder("convnet", 32)
    plain = Encoder("mine", nn.Flatten(), encoder.preprocessing, 128, "random")
    with pytest.raises(ConfigError, match="encoder mine cannot be taken apart"):
        split_encoder(plain, 1)
