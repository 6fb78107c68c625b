"""ResNet-50 in Keras' layout: `model.json` of TensorFlow.js with its shards, `.h5` and `.npz`.

Keras' convolutions have biases, which batch normalization subtracts again; they become part of its mean. Its networks
take blue, green, red; the first kernel is turned around instead of the image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from classnorm.errors import ClassNormError, ModelError
from classnorm.io.arrays import read_arrays
from classnorm.io.documents import parse_json, read_json

Arrays = Mapping[str, npt.NDArray[np.float32]]

_MANIFEST = "model.json"
_EPS_OLD, _EPS_NEW = 1e-3, 1.001e-5  # of Keras before and since version 2.2.5, which renamed the layers
_OLD_BLOCK = re.compile(r"(res|bn)([2-5])([a-z])_branch(1|2a|2b|2c)")
_NEW_BLOCK = re.compile(r"conv([2-5])_block(\d+)_([0-3])_(conv|bn)")


@dataclass(frozen=True)
class KerasWeights:
    """Weights under torchvision's names."""

    state: dict[str, Tensor]
    eps: float
    """Of the batch normalization."""


def is_keras(path: Path) -> bool:
    """Whether a file or folder is in one of Keras' layouts, by its name."""
    return (path / _MANIFEST).is_file() if path.is_dir() else path.suffix.lower() in (".json", ".h5", ".hdf5", ".npz")


def read_keras_resnet50(path: Path) -> KerasWeights:
    """Read ResNet-50; layers may have the names of either version of Keras."""
    path = path / _MANIFEST if path.is_dir() else path
    if not path.is_file():
        raise ModelError(f"{path}: no such file of weights")
    readers = {".json": _read_tfjs, ".npz": _read_npz}
    try:
        arrays, stated = readers.get(path.suffix.lower(), _read_h5)(path)
        layers = sorted({name.rpartition("/")[0] for name in arrays})
        state: dict[str, Tensor] = {}
        for layer in layers:
            if (target := _torchvision_name(layer)) is not None:
                state |= _layer(target, arrays, layer)
        state = _without_biases(state)
        eps = stated or (_EPS_OLD if "bn_conv1" in layers else _EPS_NEW)
    except (MemoryError, ClassNormError):
        raise
    except Exception as error:  # h5py and damaged shards raise many types
        raise ModelError(f"{path}: not a readable ResNet-50 of Keras ({type(error).__name__}: {error})") from error
    return KerasWeights(state, eps)


def _torchvision_name(layer: str) -> str | None:
    """`res2a_branch2b` and `conv2_block1_2_conv` are `layer1.0.conv2`; None for the classifier."""
    if layer in ("conv1", "conv1_conv"):
        return "conv1"
    if layer in ("bn_conv1", "conv1_bn"):
        return "bn1"
    if match := _OLD_BLOCK.fullmatch(layer):
        kind, stage, letter, branch = match.groups()
        block, part, is_norm = ord(letter) - ord("a"), "0abc".index(branch[-1]) if branch != "1" else 0, kind == "bn"
    elif match := _NEW_BLOCK.fullmatch(layer):
        stage, number, branch, kind = match.groups()
        block, part, is_norm = int(number) - 1, int(branch), kind == "bn"
    else:
        return None
    inner = f"downsample.{int(is_norm)}" if part == 0 else f"{'bn' if is_norm else 'conv'}{part}"
    return f"layer{int(stage) - 1}.{block}.{inner}"


def _layer(target: str, arrays: Arrays, layer: str) -> dict[str, Tensor]:
    """The tensors of a layer; the bias of a convolution, if any, is kept under its own name for now."""

    def get(name: str) -> Tensor:
        return torch.from_numpy(np.array(arrays[f"{layer}/{name}"], dtype=np.float32))

    if f"{layer}/kernel" in arrays:
        kernel = get("kernel").permute(3, 2, 0, 1)  # from [height, width, d_in, d_out]
        kernel = kernel.flip(1) if target == "conv1" else kernel
        bias = {f"{target}.bias": get("bias")} if f"{layer}/bias" in arrays else {}
        return {f"{target}.weight": kernel.contiguous(), **bias}
    return {
        f"{target}.weight": get("gamma"),
        f"{target}.bias": get("beta"),
        f"{target}.running_mean": get("moving_mean"),
        f"{target}.running_var": get("moving_variance"),
        f"{target}.num_batches_tracked": torch.tensor(0),
    }


def _without_biases(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Move the biases of convolutions into the means of the normalization after them."""
    moved = dict(state)
    for name in state:
        layer = name.removesuffix(".bias")
        if layer == name or f"{layer}.running_mean" in state:
            continue
        norm = re.sub(r"conv(\d)$", r"bn\1", layer) if "downsample" not in layer else layer[:-1] + "1"
        moved[f"{norm}.running_mean"] = state[f"{norm}.running_mean"] - moved.pop(name)
    return moved


class _Weight(TypedDict):
    name: str
    shape: list[int]
    dtype: str
    quantization: NotRequired[dict[str, Any]]


class _Group(TypedDict):
    paths: list[str]
    weights: list[_Weight]


class _Manifest(TypedDict):
    modelTopology: NotRequired[dict[str, Any] | None]
    weightsManifest: list[_Group]


def _read_tfjs(path: Path) -> tuple[Arrays, float | None]:
    document = read_json(path, _Manifest, "use the model.json that TensorFlow.js wrote")
    arrays: dict[str, npt.NDArray[np.float32]] = {}
    for group in document["weightsManifest"]:
        for name in group["paths"]:
            if Path(name).name != name:
                raise ModelError(f"{path}: its shard {name!r} is not beside it")
        content = b"".join((path.parent / name).read_bytes() for name in group["paths"])
        start = 0
        for weight in group["weights"]:
            if weight["dtype"] != "float32" or "quantization" in weight:
                raise ModelError(f"{path}: {weight['name']} is not float32; convert it without quantization")
            count = int(np.prod(weight["shape"], dtype=np.int64))
            values = np.frombuffer(content, "<f4", count, start)
            arrays[weight["name"]] = values.reshape(weight["shape"])
            start += 4 * count
    return arrays, _stated_eps(document.get("modelTopology"))


def _stated_eps(topology: Any) -> float | None:
    """The ε of the first batch normalization in a description of the model, if there is one."""
    if isinstance(topology, dict):
        if topology.get("class_name") == "BatchNormalization":
            return float(topology["config"]["epsilon"])
        topology = list(topology.values())
    if isinstance(topology, list):
        return next((eps for part in topology if (eps := _stated_eps(part)) is not None), None)
    return None


def _read_npz(path: Path) -> tuple[Arrays, float | None]:
    return read_arrays(path), None


def _read_h5(path: Path) -> tuple[Arrays, float | None]:
    import h5py  # here, because the import takes long

    arrays: dict[str, npt.NDArray[np.float32]] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and name.count("/") >= 1:
            *_, layer, weight = name.split("/")
            arrays[f"{layer}/{weight.partition(':')[0]}"] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(visit)  # does not follow links to other files
        described = file.attrs.get("model_config")
    return arrays, _stated_eps(
        parse_json(described, Any, str(path), "save it again", ModelError)
    ) if described else None
