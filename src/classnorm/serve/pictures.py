"""Uploaded pictures → features, with the guards of `extract`, and thumbnails of classes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from classnorm.data import glyph_images, glyphs
from classnorm.data.decoding import open_image, read_images
from classnorm.encoders import Encoder
from classnorm.preparation import encode_images
from classnorm.serve.inputs import Picture

Encoded = tuple[npt.NDArray[np.float32], list[str]]
"""Features of the readable pictures, and for each picture why it cannot be read, or ""."""


def oversized(picture: Picture, megapixels: int) -> str:
    """Why a picture must not be decoded, or ""."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the limit below is stricter than the one that Pillow warns of
            with open_image(io.BytesIO(picture.content)) as image:
                width, height = image.size
    except Exception:  # Pillow raises many types on a damaged file
        return "not an image; send JPEG, PNG, WebP, GIF, BMP or TIFF"
    if width * height > megapixels * 1_000_000:
        return f"{width} × {height} px is more than {megapixels} megapixels"
    return ""


def encode_pictures(pictures: Sequence[Picture], encoder: Encoder) -> Encoded:
    return encode_images([io.BytesIO(picture.content) for picture in pictures], encoder)


def encode_glyphs(pictures: Sequence[Picture], preset: str) -> Encoded:
    """Pictures of a letter, dark on light or light on dark, or drawn on a transparent canvas."""
    streams = [io.BytesIO(picture.content) for picture in pictures]
    decoded = list(read_images(streams, range(len(streams)), glyph_images.drawn))
    letters = [image for image in decoded if not isinstance(image, str)]
    reasons = [image if isinstance(image, str) else "" for image in decoded]
    stack = np.stack(letters) if letters else np.zeros((0, 1, 1), dtype=np.uint8)
    return glyph_images.hog(stack, glyphs.PRESETS[preset].cell), reasons


def example_images(folder: Path) -> dict[int, npt.NDArray[np.uint8]]:
    """Index of a class → a picture of it, for runs that keep some."""
    try:
        with np.load(folder / "examples.npz", allow_pickle=False) as examples:
            positions, images = examples["position"], examples["image"]
        with np.load(folder / "predictions.npz", allow_pickle=False) as predictions:
            labels = predictions["label"][positions]
    except (OSError, ValueError, KeyError, IndexError):
        return {}
    return {int(label): image for label, image in zip(labels, images, strict=False)}
