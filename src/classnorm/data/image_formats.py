"""What image files may be, and how their pixels are brought to 8 bits without transparency."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

_HEIF = frozenset({".heic", ".heif"})
_RAW = frozenset(
    {".arw", ".cr2", ".cr3", ".dng", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".srw"}
)  # most of them open as TIFF files, with a thumbnail instead of the picture
_READ = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".avif"})
SUFFIXES = _READ | _HEIF | _RAW
"""Of the files that are taken for images. Those that cannot be read are named, not passed over."""

_DEPTH = 257  # 65535 / 255


def reason_to_refuse(file: Path) -> str | None:
    """Why a file cannot be read, judged by its name."""
    suffix = file.suffix.lower()
    if suffix in _RAW:
        return "a raw camera file; convert it to JPEG, PNG or TIFF"
    if suffix in _HEIF and not register_heif():
        return "HEIC needs pillow-heif; pip install 'classnorm[heif]'"
    return None


@cache
def register_heif() -> bool:
    """Let Pillow open HEIC files if the extra is installed, and return whether it is."""
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return False
    return True


def displayed(image: Image.Image) -> Image.Image:
    """The image as a viewer shows it: 16 and 32 bits per channel scaled to 8, transparent parts on white.

    Pillow clips deeper pixels to 255, and shows what happens to be stored under transparent ones. Of an animation it is
    the first frame. 16 bits are scaled by their range, 32 bits (integers or floats) by the extremes of the image.
    """
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) // _DEPTH).astype(np.uint8))
    if image.mode in ("I", "F"):
        return Image.fromarray(_stretched(np.asarray(image, dtype=np.float64)))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        colours = image.convert("RGBA")
        shown = Image.new("RGB", colours.size, "white")
        shown.paste(colours, mask=colours.getchannel("A"))
        return shown
    return image


def _stretched(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    if values.min() >= 0 and 255 < values.max() <= 65535 and (values == np.round(values)).all():
        return (values // _DEPTH).astype(np.uint8)  # 16 bits, which some formats open as 32
    low, span = values.min(), np.ptp(values)
    return np.zeros(values.shape, np.uint8) if not span else ((values - low) * (255 / span)).round().astype(np.uint8)
