"""Images → features, behind one small interface; pretrained networks are optional extras."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from classnorm.encoders.convnet import ConvNet, load_convnet
from classnorm.encoders.efficientnet_lite import load_efficientnet_lite
from classnorm.encoders.encoder import Encoder
from classnorm.encoders.extraction import Extraction, extract_features
from classnorm.encoders.huggingface import load_huggingface
from classnorm.encoders.inputs import ImageInputs
from classnorm.encoders.preprocessing import Preprocessing
from classnorm.errors import ConfigError, unknown_name

__all__ = [
    "ENCODERS",
    "ConvNet",
    "Encoder",
    "Extraction",
    "ImageInputs",
    "Preprocessing",
    "extract_features",
    "load_encoder",
]

Loader = Callable[[str, int | None, Path | None], Encoder]
"""(name, side of the picture, file or folder of other weights) → encoder."""

ENCODERS: dict[str, Loader] = {
    "efficientnet-lite0": load_efficientnet_lite,
    "efficientnet-lite1": load_efficientnet_lite,
    "efficientnet-lite2": load_efficientnet_lite,
    "resnet18": lambda name, size, weights: load_huggingface("hf:microsoft/resnet-18", size, weights),
    "convnet": load_convnet,
    "convnet-gray": load_convnet,
}

_SMALLEST = 16  # pixels; a network that halves the picture five times needs as many


def load_encoder(name: str, size: int | None = None, weights: str | Path | None = None) -> Encoder:
    """An encoder by its name in `ENCODERS`, or `hf:ID`, `hf:FOLDER` for a model of the transformers library.

    Args:
        size: side of the picture that the network sees, in pixels; None is what it was made for.
        weights: a file (`.safetensors`, `.pth`; for hf a folder) of other weights than the network's own.

    Raises:
        ConfigError: there is no such encoder, its package is missing, or its size is too small.
        ModelError: the weights cannot be loaded.
    """
    if size is not None and size < _SMALLEST:
        raise ConfigError(f"size {size} px is too small for an encoder; it must be at least {_SMALLEST}")
    if not name.startswith("hf:") and name not in ENCODERS:
        raise unknown_name("encoder", name, [*ENCODERS, "hf:ID-OR-FOLDER"])
    loader = ENCODERS.get(name, load_huggingface)
    return loader(name, size, None if weights is None else Path(weights))
