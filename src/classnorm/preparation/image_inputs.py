"""`ImageInputs`: images as input of a network in training."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data.image_table import Images
from classnorm.data.images import image_signature, read_images
from classnorm.encoders.preprocessing import Pixels, Preprocessing
from classnorm.errors import DataError
from classnorm.io.files import replacing


class ImageInputs:
    """Images decoded once to bytes [n, size, size, channels] and normalized per batch."""

    def __init__(
        self,
        images: Images,
        preprocessing: Preprocessing,
        *,
        device: torch.device | str = "cpu",
        cache: Path | None = None,
    ) -> None:
        """
        Args:
            images: files, or pixels [n, height, width] or [n, height, width, 3].
            preprocessing: of the encoder; its `crop` is the size.
            device: device of the batches.
            cache: folder for the bytes, which are then memory-mapped instead of held in memory.
        """
        self.preprocessing = preprocessing
        self.device = torch.device(device)
        shape = (len(images), preprocessing.crop, preprocessing.crop, len(preprocessing.mean))
        key = f"{image_signature(images, range(len(images)))} {asdict(preprocessing)}"
        self.key = hashlib.sha256(key.encode()).hexdigest()
        """Identifies the images and their preprocessing."""
        if cache is None:
            self.pixels: Pixels = np.empty(shape, dtype=np.uint8)
            self._decode(images, self.pixels)
            return
        path = cache / f"images-{self.key[:24]}.npy"
        if not path.is_file():
            with replacing(path) as temporary:
                pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
                self._decode(images, pixels)
                pixels.flush()
        self.pixels = np.load(path, mmap_mode="r", allow_pickle=False)

    def _decode(self, images: Images, pixels: Pixels) -> None:
        for row, image in enumerate(read_images(images, range(len(images)), self.preprocessing.pixels)):
            if isinstance(image, str):
                where = f"row {row} (0-based)" if isinstance(images, np.ndarray) else str(images[row])
                raise DataError(f"{where}: {image}; correct or remove that image")
            pixels[row] = image

    @property
    def size(self) -> int:
        """Side of the images in pixels."""
        return self.preprocessing.crop

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, rows: Tensor) -> Tensor:
        """Return the normalized images [len(rows), channels, size, size] on the device."""
        pixels = torch.from_numpy(np.asarray(self.pixels[rows.cpu().numpy()]))
        return self.preprocessing.normalize(pixels.to(self.device))

    def augmented(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """The same, each image mirrored or not and shifted by up to an eighth of its side, by the generator."""
        images = self.batch(rows)
        most = self.size // 8
        mirrored = torch.rand(len(rows), generator=generator) < 0.5
        shifts = torch.randint(0, 2 * most + 1, (len(rows), 2), generator=generator).tolist()
        padded = F.pad(images, (most,) * 4, mode="reflect")
        crops = [image[:, y : y + self.size, x : x + self.size] for image, (y, x) in zip(padded, shifts, strict=True)]
        flips = [crop.flip(-1) if flip else crop for crop, flip in zip(crops, mirrored.tolist(), strict=True)]
        return torch.stack(flips).contiguous(memory_format=torch.channels_last)
