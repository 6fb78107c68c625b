"""Files of images → pixels of 8 bits without transparency; what image files may be."""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from classnorm.data.image_table import Images

_FORMATS = ("JPEG", "MPO", "PNG", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM", "AVIF", "HEIF")
_LARGE_PIXELS = 1 << 25
_LARGE = threading.Lock()
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


def read_images(
    images: Images | Sequence[BinaryIO],
    rows: Iterable[int],
    prepare: Callable[[Image.Image], npt.NDArray[np.uint8]],
    *,
    ahead: int = 64,
) -> Iterator[npt.NDArray[np.uint8] | str]:
    """Yield `prepare(image)` for each row in order, or the reason why the image cannot be read.

    Images are decoded in background threads, at most `ahead` of them in advance.
    """

    def read(row: int) -> npt.NDArray[np.uint8] | str:
        try:
            if isinstance(images, np.ndarray):
                return prepare(Image.fromarray(images[row]))
            file = images[row]
            if isinstance(file, Path) and (reason := reason_to_refuse(file)):
                return reason
            with open_image(file) as image, _turn(image):
                return prepare(displayed(ImageOps.exif_transpose(image)))  # rotated upright
        except MemoryError:
            raise
        except FileNotFoundError:
            return "no such file"
        except Exception as error:  # Pillow raises many types on a damaged file
            reason = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
            if isinstance(error, Image.DecompressionBombError):
                reason = "more than 178 megapixels; make it smaller"
            reason = " ".join(reason.split())
            return (reason if len(reason) <= 100 else f"{reason[:99]}…") or type(error).__name__

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        waiting: deque[Future[npt.NDArray[np.uint8] | str]] = deque()
        try:
            for row in rows:
                waiting.append(pool.submit(read, row))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def open_image(file: Path | BinaryIO) -> Image.Image:
    """Open a picture of a raster format. Pillow would start Ghostscript for an EPS file, whatever its name."""
    if isinstance(file, Path) and file.exists() and not file.is_file():
        raise ValueError("not a file")
    Image.init()
    register_heif()
    return Image.open(file, formats=[name for name in _FORMATS if name in Image.OPEN])


def _turn(image: Image.Image) -> AbstractContextManager[Any]:
    """Large pictures are decoded one at a time: a few at once would not fit in memory."""
    return _LARGE if image.width * image.height > _LARGE_PIXELS else nullcontext()


def image_signature(images: Images, rows: Sequence[int]) -> str:
    """Return a SHA-256 of the images: of their pixels, or of file names, sizes and modification times."""
    digest = hashlib.sha256()
    for row in rows:
        image = images[row]
        if isinstance(image, Path):
            stat = image.stat() if image.is_file() else None
            digest.update(f"{image.absolute()}|{stat and (stat.st_size, stat.st_mtime_ns)}\n".encode())
        else:
            digest.update(np.ascontiguousarray(image).tobytes())
    return digest.hexdigest()
