"""Encoders of images by name, and by the record of the one that made the features."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from classnorm.encoders.encoder import Encoder
from classnorm.errors import ConfigError, ModelError, unknown_name
from classnorm.registry import Lazy, Registry

Loader = Callable[[str, int | None, Path | None], Encoder]
"""(name, image size, file or folder of weights) → encoder."""

ENCODERS: Registry[Loader] = Registry(
    "classnorm.encoders",
    None,
    {
        "efficientnet-lite0": "classnorm.encoders.networks:load_efficientnet_lite",
        "efficientnet-lite1": "classnorm.encoders.networks:load_efficientnet_lite",
        "efficientnet-lite2": "classnorm.encoders.networks:load_efficientnet_lite",
        "resnet18": "classnorm.encoders.networks:load_resnet",
        "resnet50": "classnorm.encoders.networks:load_resnet",
        "convnet": "classnorm.encoders.networks:load_convnet",
        "convnet-gray": "classnorm.encoders.networks:load_convnet",
    },
)

_LARGEST = 1 << 12  # pixels; far more than any network takes
_SMALLEST = 16  # pixels; minimum for a network that halves the image several times


def check_encoder(name: str, size: int | None = None) -> None:
    """Raise a `ConfigError` for an unknown encoder or a size that is too small."""
    if size is not None and size < _SMALLEST:
        raise ConfigError(f"size {size} px is too small for an encoder; it must be at least {_SMALLEST}")
    for part in encoder_names(name):
        if not part.startswith("hf:") and part not in ENCODERS:
            raise unknown_name("encoder", part, [*ENCODERS, "hf:ID-OR-FOLDER"])


def encoder_names(name: str) -> list[str]:
    """The names of encoders joined by +, which folders may have in their names, too.

    >>> encoder_names("efficientnet-lite0+hf:models/a+b+resnet18")
    ['efficientnet-lite0', 'hf:models/a+b', 'resnet18']
    """
    parts: list[str] = []
    for part in name.split("+"):
        if parts and parts[-1].startswith("hf:") and not part.startswith("hf:") and part not in ENCODERS:
            parts[-1] += f"+{part}"
        else:
            parts.append(part)
    return parts


def load_encoder(name: str, size: int | None = None, weights: str | Path | None = None) -> Encoder:
    """Load an encoder by its name in `ENCODERS`, or `hf:ID`, `hf:FOLDER` for a model of the transformers library.

    Args:
        size: side of the input image in pixels; None for the default of the network.
        weights: file (`.safetensors` or `.pth`; for hf a folder; for resnet50 also Keras' `model.json`, `.h5` or
            `.npz`) to use instead of the default weights.
    """
    check_encoder(name, size)
    if len(encoder_names(name)) > 1:
        raise ConfigError(f"encoder {name}: several encoders cannot be trained together; name one")
    loader = ENCODERS[name] if name in ENCODERS else Lazy("classnorm.encoders.huggingface", "load_huggingface")
    encoder: Encoder = loader(name, size, None if weights is None else Path(weights))
    return encoder


def frozen_encoder(
    name: str, size: int | None = None, weights: str | Path | None = None, flip: bool = False
) -> Encoder:
    """Load an encoder for inference. Encoders without trained weights get the same random weights every time.

    Args:
        name: of one encoder, or of several joined by +, whose features are side by side.
        flip: average the features of each image with those of its mirror image.
    """
    check_encoder(name, size)
    names = encoder_names(name)
    if weights is not None and len(names) > 1:
        raise ConfigError(f"encoder {name}: `weights` are of one encoder; leave them out")
    encoders = [_seeded_encoder(part, size, weights) for part in names]
    encoder = encoders[0] if len(encoders) == 1 else _joined(encoders)
    return encoder.with_flip() if flip else encoder


def _seeded_encoder(name: str, size: int | None, weights: str | Path | None) -> Encoder:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return load_encoder(name, size, weights)


def _joined(parts: Sequence[Encoder]) -> Encoder:
    from classnorm.encoders.joined import joined  # PyTorch

    return joined(parts)


def recorded_encoder(record: Mapping[str, Any], weights: str | Path | None = None) -> Encoder:
    """Load the encoder described by `record`, from `Encoder.record`; weights and preprocessing must be the same."""
    if "parts" in record:
        if weights is not None:
            raise ConfigError(f"encoder {record['name']}: `weights` are of one encoder; leave them out")
        return _joined([recorded_encoder(part) for part in _parts(record)])
    encoder = frozen_encoder(record["name"], record["preprocessing"]["crop"], weights)
    return same_encoder(encoder, record)


def _parts(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of joined encoders."""
    parts: list[Mapping[str, Any]] = record["parts"]
    if "+".join(part["name"] for part in parts) != record["name"] or len(parts) < 2:
        raise ModelError(f"encoder {record['name']}: its record names other encoders; set `encoder`")
    return parts


def same_encoder(encoder: Encoder, record: Mapping[str, Any]) -> Encoder:
    """Return `encoder`, with maps if recorded; raise a `ModelError` unless it matches `record`, of `Encoder.record`."""
    if encoder.name != record["name"]:
        raise ModelError(f"encoder {encoder.name} is not the one that the features were made with, {record['name']}")
    if "parts" in record:
        encoders = getattr(encoder, "parts", ())
        return _joined([same_encoder(*pair) for pair in zip(encoders, _parts(record), strict=True)])
    if encoder.record()["sha256"] != record["sha256"]:
        raise ModelError(
            f"encoder {encoder.name} has other weights ({encoder.weights}) than when the features were made "
            f"({record['weights']}); pass those as `weights`"
        )
    if json.loads(json.dumps(encoder.record()["preprocessing"])) != record["preprocessing"]:
        raise ModelError(
            f"encoder {encoder.name} prepares images otherwise than when the features were made, at "
            f"{record['preprocessing']['crop']} px; leave out `encoder` and `size`"
        )
    encoder = encoder.with_flip() if record.get("flip") else encoder
    return encoder.with_maps() if "maps" in record else encoder
