"""Image preprocessing: resize, center crop, (x − mean) / std."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor

Interpolation = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
_LONGEST = 100  # times the short side

Pixels: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Preprocessing:
    """Resize and crop on the CPU (`pixels`), then normalize on the device of the network (`normalize`).

    The steps are separate because the bytes after the first are small enough to cache.
    """

    resize: int  # of the short side in pixels, or of both sides without keep_aspect
    crop: int  # side of the center square
    mean: tuple[float, ...]  # one per channel, for pixels from 0 to 255
    std: tuple[float, ...]
    interpolation: Interpolation = "bicubic"
    keep_aspect: bool = True

    def at(self, size: int | None) -> Preprocessing:
        """Return the preprocessing for another crop size, with the same share of the image."""
        return self if size is None else replace(self, resize=self.resize * size // self.crop, crop=size)

    def pixels(self, image: Image.Image) -> Pixels:
        """Resize and crop an image to [crop, crop, channels]."""
        image = image.convert("RGB" if len(self.mean) == 3 else "L")
        width, height = image.size
        short = min(width, height)
        if max(width, height) > _LONGEST * short:
            raise ValueError(f"{width} × {height} px is too elongated")  # resized, it would not fit in memory
        sides = (self.resize * width // short, self.resize * height // short)
        image = image.resize(
            sides if self.keep_aspect else (self.resize, self.resize), Image.Resampling[self.interpolation.upper()]
        )
        left, top = (image.width - self.crop) // 2, (image.height - self.crop) // 2
        image = image.crop((left, top, left + self.crop, top + self.crop))
        return np.asarray(image).reshape(self.crop, self.crop, -1)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Convert bytes [n, crop, crop, channels] to floats [n, channels, crop, crop] on the same device.

        The memory format is channels last, which makes convolutions faster.
        """
        import torch

        mean, std = (torch.tensor(v, dtype=torch.float32, device=pixels.device) for v in (self.mean, self.std))
        return ((pixels.to(torch.float32) - mean) / std).permute(0, 3, 1, 2)

    def __call__(self, images: npt.NDArray[Any] | Sequence[Image.Image]) -> Tensor:
        """Return [n, channels, crop, crop] from images, or from bytes [n, height, width, 3] or [n, height, width]."""
        import torch

        converted = (Image.fromarray(image) if isinstance(image, np.ndarray) else image for image in images)
        return self.normalize(torch.from_numpy(np.stack([self.pixels(image) for image in converted])))
