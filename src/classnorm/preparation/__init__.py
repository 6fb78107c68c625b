"""Photos and words to a dataset: the one room where data and encoders meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.preparation.describing import Descriptors, describe, join
from classnorm.registry import lazy_names

if TYPE_CHECKING:
    from classnorm.preparation.extraction import Encoding, Extraction, Target, encode_images, extract
    from classnorm.preparation.image_inputs import BlockOutputs, ImageInputs

__all__ = [
    "BlockOutputs",
    "Descriptors",
    "Encoding",
    "Extraction",
    "ImageInputs",
    "Target",
    "describe",
    "encode_images",
    "extract",
    "join",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "extraction": "Encoding Extraction Target encode_images extract",
        "image_inputs": "BlockOutputs ImageInputs",
    },
)  # they need PyTorch
