"""From a picture to what a network sees: resize, centre crop, (x − mean) / std."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

__all__ = ["Interpolation", "Pixels", "Preprocessing"]

Interpolation = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
_LONGEST = 100  # times the short side

Pixels: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Preprocessing:
    """What is done to a picture. `dataclasses.asdict` of it is its record in JSON.

    The two steps are apart because the first gives bytes, which are small enough to be kept, and the second is cheap
    where the network is.
    """

    resize: int  # of the short side, in pixels; of both sides if the aspect is not kept
    crop: int  # side of the square in the centre
    mean: tuple[float, ...]  # one per channel, of pixels from 0 to 255
    std: tuple[float, ...]
    interpolation: Interpolation = "bicubic"
    keep_aspect: bool = True

    def at(self, size: int | None) -> Preprocessing:
        """The same for pictures of another side: the crop keeps its share of the picture."""
        return self if size is None else replace(self, resize=self.resize * size // self.crop, crop=size)

    def pixels(self, image: Image.Image) -> Pixels:
        """[crop, crop, channels], resized and cropped."""
        image = image.convert("RGB" if len(self.mean) == 3 else "L")
        width, height = image.size
        short = min(width, height)
        if max(width, height) > _LONGEST * short:
            raise ValueError(f"{width} × {height} px is too long a strip")  # resized, it would fill the memory
        sides = (self.resize * width // short, self.resize * height // short)
        image = image.resize(
            sides if self.keep_aspect else (self.resize, self.resize), Image.Resampling[self.interpolation.upper()]
        )
        left, top = (image.width - self.crop) // 2, (image.height - self.crop) // 2
        image = image.crop((left, top, left + self.crop, top + self.crop))
        return np.asarray(image).reshape(self.crop, self.crop, -1)

    def normalize(self, pixels: Tensor) -> Tensor:
        """[n, crop, crop, channels] bytes → [n, channels, crop, crop] floats, where the bytes are.

        They stay in the order of pixels ("channels last"), in which convolutions are faster.
        """
        mean, std = (
            torch.tensor(values, dtype=torch.float32, device=pixels.device) for values in (self.mean, self.std)
        )
        return ((pixels.to(torch.float32) - mean) / std).permute(0, 3, 1, 2)

    def __call__(self, images: npt.NDArray[Any] | Sequence[Image.Image]) -> Tensor:
        """[n, channels, crop, crop] of pictures, or of bytes [n, height, width, 3] or [n, height, width]."""
        pictures = [Image.fromarray(image) if isinstance(image, np.ndarray) else image for image in images]
        return self.normalize(torch.from_numpy(np.stack([self.pixels(picture) for picture in pictures])))
