"""Scorers on disk: `model.safetensors` with the weights and tables, `model.json` with everything else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from classnorm.errors import ModelError
from classnorm.io.documents import Positive, Within, check_shape, read_json, read_regular
from classnorm.io.files import digest, replacing, write_json
from classnorm.methods import METHODS, Method, MethodConfig, ZeroShotModel, method_named
from classnorm.results.run_folder import ENCODER, encoder_file, model_files, read_encoder
from classnorm.scoring.classes import ClassTable, Origin
from classnorm.scoring.validation import Validation
from classnorm.training import Device, pick_device

_FORMAT = "classnorm-model"
_VERSION = 1
_CHECKSUM = "document_sha256"
_TRAIN = "train the model again"


class CalibrationShape(TypedDict):
    kind: Literal["none", "scale", "bias"]
    value: float


class ModelDocument(TypedDict):
    """`model.json`."""

    method: str
    config: dict[str, Any]
    feature_dim: Positive
    descriptor_dim: Positive
    calibration: CalibrationShape
    temperature: Annotated[float, Within(1e-12)]
    class_names: list[str]
    seen: list[bool]
    attribute_names: NotRequired[list[str]]
    described_by: NotRequired[dict[str, str]]
    trust: NotRequired[dict[str, float]]
    rejection: NotRequired[dict[str, Any]]
    sets: NotRequired[dict[str, Any]]
    after_pictures: NotRequired[list[dict[str, Any]]]


def write_model(
    folder: Path,
    about: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    tables: Mapping[str, npt.NDArray[Any]],
    origin: Origin,
) -> Path:
    """Write `model.safetensors`, `model.json` and, if known, `encoder.json` into `folder`, and return it.

    Args:
        about: what `model.json` says.
        weights: of the model, by their names in the file.
        tables: of the classes.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    tensors |= {name: torch.from_numpy(np.array(table)) for name, table in tables.items()}  # maps are read-only
    content = save_tensors(tensors)
    if origin.encoder is not None:
        write_json(folder / ENCODER, dict(origin.encoder))
    with replacing(folder / "model.safetensors") as temporary:
        temporary.write_bytes(content)
    document = {"format": _FORMAT, "version": _VERSION, **about, **origin.document()}
    document["sha256"] = hashlib.sha256(content).hexdigest()
    write_json(folder / "model.json", document | {_CHECKSUM: digest(document)})
    return folder


def read_model(path: Path, device: Device) -> dict[str, Any]:
    """The fields of a saved scorer; `path` is the folder or either of its files."""
    files = model_files(path)
    folder = files[0].parent
    document, content = _read_files(*files)
    try:
        if document["method"] not in METHODS:
            raise ModelError(
                f"{folder}: trained with the unknown method {document['method']!r}; if it is from a plug-in, load "
                "that first (`plugin`)"
            )
        tensors = load_tensors(content)
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise ValueError(f"{name} holds NaN or infinity")
        weights = {name: tensors.pop(name) for name in list(tensors) if name.startswith("model.")}
        method = method_named(document["method"])
        config = method.config().replace(**document["config"])
        return {
            "model": _built(method, config, document, weights).to(pick_device(device)).eval(),
            "method": method.name,
            "config": config,
            "d_z": document["feature_dim"],
            "classes": ClassTable.read(document, {name: tensor.numpy() for name, tensor in tensors.items()}),
            "validation": Validation.read(document),
            "origin": Origin.read(document, _encoder(folder)),
        }
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # networks raise many types on weights of other shapes
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise ModelError(f"{folder}: the model files do not fit together ({reason}); train the model again") from error


def _built(
    method: Method, config: MethodConfig, document: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> ZeroShotModel:
    """The model with its weights. That they fit the config is checked before a model of its sizes is allocated."""
    d_a, d_z = document["descriptor_dim"], document["feature_dim"]
    weights = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    with suppress(NotImplementedError, RuntimeError):  # a method of a plug-in may compute with what it allocates
        with torch.device("meta"):
            empty = method.build(config, d_a, d_z, weights)
        expected = {name: tuple(tensor.shape) for name, tensor in empty.state_dict().items()}
        found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                raise ValueError(f"{name} has shape {found.get(name)} instead of {expected.get(name)}")
    model = method.build(config, d_a, d_z, weights)
    model.load_state_dict(weights)
    return model


def _encoder(folder: Path) -> dict[str, Any] | None:
    """The encoder record beside a model. Only images need it, so a damaged one is not an error here."""
    with suppress(ModelError):
        return read_encoder(folder) if encoder_file(folder).is_file() else None
    return None


def _read_files(description: Path, tensors: Path) -> tuple[dict[str, Any], bytes]:
    """The JSON document and the bytes of the tensors, checked to belong together."""
    document = read_json(description, dict[str, Any], _TRAIN, ModelError)
    content = read_regular(tensors, _TRAIN, ModelError, most=1 << 40)
    if document.get("format") != _FORMAT:
        raise ModelError(f"{description}: not a classnorm model; give the folder of a trained one")
    if document.get("version") != _VERSION:
        raise ModelError(f"{description}: model format {document.get('version')} is not understood; update classnorm")
    if document.get("sha256") != hashlib.sha256(content).hexdigest():
        raise ModelError(f"{tensors}: damaged, or not the file that model.json belongs to; {_TRAIN}")
    if document.pop(_CHECKSUM, None) != digest(document):
        raise ModelError(f"{description}: is not as it was written (checksum); {_TRAIN}")
    check_shape(document, ModelDocument, str(description), _TRAIN, ModelError)
    return document, content
