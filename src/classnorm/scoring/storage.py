"""Scorers on disk: `model.safetensors` with the weights and tables, `model.json` with everything else."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from classnorm.errors import ModelError
from classnorm.io.documents import Positive, Range, check_shape, read_json, read_regular
from classnorm.io.files import digest, replacing, write_json
from classnorm.methods import METHODS, Method, MethodConfig, method_named
from classnorm.metrics import Calibration
from classnorm.results.run_folder import ENCODER, encoder_file, model_files, read_encoder
from classnorm.scoring.conformal import PredictionSets
from classnorm.scoring.examples import Examples, Trust
from classnorm.scoring.novelty import Rejection
from classnorm.scoring.thresholds import PictureThresholds
from classnorm.training import Device, pick_device

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer

_FORMAT = "classnorm-model"
_VERSION = 1
_PICTURES = ("examples", "unlabelled")
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
    temperature: NotRequired[Annotated[float, Range(1e-12)]]
    class_names: list[str]
    seen: list[bool]
    attribute_names: NotRequired[list[str]]
    trust: NotRequired[dict[str, float]]
    rejection: NotRequired[dict[str, Any]]
    sets: NotRequired[dict[str, Any]]
    after_pictures: NotRequired[list[dict[str, Any]]]


def save_scorer(scorer: Scorer, folder: Path) -> Path:
    """Write `model.safetensors`, `model.json` and, if known, `encoder.json` into `folder`, and return it."""
    tensors = {f"model.{name}": t.detach().cpu().contiguous() for name, t in scorer.model.state_dict().items()}
    tensors["descriptors"] = torch.from_numpy(np.array(scorer.descriptors))  # a copy: memory maps are read-only
    for kind in _PICTURES:
        if (pictures := getattr(scorer, kind)).names:
            tensors[f"{kind}.counts"] = torch.from_numpy(np.array(pictures.counts))
            tensors[f"{kind}.sums"] = torch.from_numpy(np.array(pictures.sums))
    content = save_tensors(tensors)
    if scorer.encoder is not None:
        write_json(folder / ENCODER, dict(scorer.encoder))
    with replacing(folder / "model.safetensors") as temporary:
        temporary.write_bytes(content)
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "method": scorer.method,
        "config": scorer.config.as_dict(),
        "feature_dim": scorer.d_z,
        "descriptor_dim": scorer.d_a,
        "calibration": {"kind": scorer.calibration.kind, "value": scorer.calibration.value},
        "temperature": scorer.temperature,
        "class_names": list(scorer.class_names),
        "seen": scorer.seen.tolist(),
        **({} if scorer.attribute_names is None else {"attribute_names": list(scorer.attribute_names)}),
        **({"described_by": dict(scorer.described_by)} if scorer.described_by else {}),
        **{kind: list(pictures.names) for kind in _PICTURES if (pictures := getattr(scorer, kind)).names},
        **({"undescribed": sorted(scorer.undescribed)} if scorer.undescribed else {}),
        **({} if scorer.trust is None else {"trust": scorer.trust.as_dict()}),
        **({"rejection": asdict(scorer.rejection)} if scorer.rejection is not None else {}),
        **({"sets": asdict(scorer.sets)} if scorer.sets is not None else {}),
        **({"after_pictures": [asdict(each) for each in scorer.after_pictures]} if scorer.after_pictures else {}),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    write_json(folder / "model.json", document | {_CHECKSUM: digest(document)})
    return folder


def saved_fields(path: Path, device: Device) -> dict[str, Any]:
    """The fields of a saved scorer; `path` is the folder or either of its files."""
    files = model_files(path)
    folder = files[0].parent
    document, content = _read_model(*files)
    try:
        if document["method"] not in METHODS:
            raise ModelError(
                f"{folder}: trained with the unknown method {document['method']!r}; if it is from a plug-in, load "
                "that first (`plugin`)"
            )
        return _fields(document, load_tensors(content), device) | {"encoder": _encoder(folder)}
    except ModelError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # networks raise many types on weights of other shapes
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise ModelError(f"{folder}: the model files do not fit together ({reason}); train the model again") from error


def _fields(document: dict[str, Any], tensors: dict[str, torch.Tensor], device: Device) -> dict[str, Any]:
    method = method_named(document["method"])
    config = method.config().replace(**document["config"])
    config.check()
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinity")
    descriptors = tensors.pop("descriptors").numpy()
    pictures = {kind: _pictures(kind, document, tensors) for kind in _PICTURES}
    weights = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    d_a, d_z = document["descriptor_dim"], document["feature_dim"]
    _check_shapes(method, config, d_a, d_z, weights)
    model = method.build(config, d_a, d_z, weights)
    model.load_state_dict(weights)
    names, seen = tuple(document["class_names"]), np.array(document["seen"], dtype=bool)
    if not len(names) == len(set(names)) == len(seen) or descriptors.shape != (len(names), d_a):
        raise ValueError("class names, seen mask and descriptors differ in length")
    return {
        "model": model.to(pick_device(device)).eval(),
        "method": method.name,
        "config": config,
        "class_names": names,
        "descriptors": descriptors,
        "seen": seen,
        "d_z": d_z,
        "calibration": Calibration(**document["calibration"]),
        "temperature": float(document.get("temperature", 1.0)),  # missing in old files
        **_optional_fields(document, descriptors.shape[1]),
        **pictures,
        "rejection": Rejection.read(document["rejection"]) if "rejection" in document else None,
        "sets": PredictionSets.read(document["sets"]) if "sets" in document else None,
        "after_pictures": tuple(map(PictureThresholds.read, document.get("after_pictures", []))),
    }


def _encoder(folder: Path) -> dict[str, Any] | None:
    """The encoder record beside a model. Only images need it, so a damaged one is not an error here."""
    with suppress(ModelError):
        return read_encoder(folder) if encoder_file(folder).is_file() else None
    return None


def _check_shapes(method: Method, config: MethodConfig, d_a: int, d_z: int, weights: dict[str, torch.Tensor]) -> None:
    """Raise if the weights do not fit the config, before a model of the sizes in the config is allocated."""
    try:
        with torch.device("meta"):
            empty = method.build(config, d_a, d_z, weights)
    except (NotImplementedError, RuntimeError):  # a method of a plug-in may compute with what it allocates
        return
    expected = {name: tuple(tensor.shape) for name, tensor in empty.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise ValueError(f"{name} has shape {found.get(name)} instead of {expected.get(name)}")


def _pictures(kind: str, document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Examples:
    """The examples of a saved scorer, taken out of its tensors."""
    names = _names(kind, document)
    if not names:
        return Examples()
    counts, sums = (tensors.pop(f"{kind}.{part}").double().numpy() for part in ("counts", "sums"))
    if sums.ndim != 2 or not len(names) == len(counts) == len(sums):
        raise ValueError(f"names, counts and sums of {kind} differ in length")
    if not (np.isfinite(sums).all() and (counts > 0).all() and np.isfinite(counts).all()):
        raise ValueError(f"{kind} with invalid counts or sums")
    return Examples(names, counts, sums)


def _names(key: str, document: dict[str, Any]) -> tuple[str, ...]:
    """Names of different classes of the model; none in files of earlier versions."""
    names = document.get(key, [])
    known = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not known or len(set(names)) < len(names) or not set(names) <= set(document["class_names"]):
        raise ValueError(f"{key} must be a list of class names")
    return tuple(names)


def _optional_fields(document: dict[str, Any], d_a: int) -> dict[str, Any]:
    """What files of earlier versions lack."""
    names, source = document.get("attribute_names"), document.get("described_by", {})
    if names is not None and not (isinstance(names, list) and len(names) == d_a):
        raise ValueError(f"attribute_names must be a list of {d_a} names")
    if not isinstance(source, dict) or not all(isinstance(text, str) for text in source.values()):
        raise ValueError("described_by must be an object of texts")
    trust = document.get("trust")
    return {
        "attribute_names": None if names is None else tuple(map(str, names)),
        "described_by": source,
        "undescribed": frozenset(_names("undescribed", document)),
        "trust": None if trust is None else Trust.read(trust),
    }


def _read_model(description: Path, tensors: Path) -> tuple[dict[str, Any], bytes]:
    """The JSON document and the bytes of the tensors, checked to belong together."""
    document = read_json(description, dict[str, Any], _TRAIN, ModelError)
    content = read_regular(tensors, _TRAIN, ModelError, most=1 << 40)
    if document.get("format") != _FORMAT:
        raise ModelError(f"{description}: not a classnorm model; give the folder of a trained one")
    if document.get("version") != _VERSION:
        raise ModelError(f"{description}: model format {document.get('version')} is not understood; update classnorm")
    if document.get("sha256") != hashlib.sha256(content).hexdigest():
        raise ModelError(f"{tensors}: damaged, or not the file that model.json belongs to; {_TRAIN}")
    checksum = document.pop(_CHECKSUM, None)  # missing in old files
    if checksum not in (None, digest(document)):
        raise ModelError(f"{description}: is not as it was written (checksum); {_TRAIN}")
    check_shape(document, ModelDocument, str(description), _TRAIN, ModelError)
    return document, content
