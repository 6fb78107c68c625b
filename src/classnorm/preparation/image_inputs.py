"""Inputs of a network in training: `ImageInputs`, images, and `BlockOutputs`, the output of frozen early layers,
computed once and kept on disk.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data.decoding import image_signature, read_images
from classnorm.data.image_table import Images
from classnorm.encoders.encoder import Encoder
from classnorm.encoders.preprocessing import Pixels, Preprocessing
from classnorm.errors import ConfigError, DataError
from classnorm.io.arrays import read_npy
from classnorm.io.files import digest, replacing
from classnorm.progress import report


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
        self.pixels = read_npy(path)

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


_BATCH = 32  # images encoded at once
_LARGEST = float(np.finfo(np.float16).max)


class LaterBlocks(nn.Module):
    """The blocks of a network after the frozen ones, and the mean over positions: [n, c, h, w] → [n, d_z]."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*blocks)

    def forward(self, maps: Tensor) -> Tensor:
        features: Tensor = self.layers(maps).mean(dim=(2, 3))
        return features


def split_encoder(encoder: Encoder, n: int) -> tuple[nn.Module, LaterBlocks]:
    """The first `n` blocks of an encoder, frozen, and the rest of it."""
    if not hasattr(encoder.module, "blocks"):
        raise ConfigError(f"encoder {encoder.name} cannot be taken apart; leave out `freeze_blocks`")
    module: Any = encoder.module
    blocks: list[nn.Module] = module.blocks()
    if not 0 < n < len(blocks):
        most = len(blocks) - 1
        raise ConfigError(f"`freeze_blocks` is {n}; {encoder.name} has {len(blocks)} blocks, so it must be 1 to {most}")
    return nn.Sequential(*blocks[:n]).eval().requires_grad_(False), LaterBlocks(blocks[n:])


class BlockOutputs:
    """The output of the frozen blocks for every image and its mirror image, in float16.

    Args:
        images: input of the first block.
        frozen: the frozen blocks, from `split_encoder`.
        key: identifies images and weights.
        cache: folder of the file, which is written once.
    """

    def __init__(self, images: ImageInputs, frozen: nn.Module, key: str, cache: Path) -> None:
        self.device, self.size = images.device, images.size
        path = cache / f"blocks-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npy"
        if not path.is_file():
            with replacing(path) as temporary:
                self._compute(images, frozen, temporary)
        self.outputs = read_npy(path)  # [n, 2, channels, height, width]

    @classmethod
    def of(cls, images: ImageInputs, encoder: Encoder, n: int, cache: Path) -> tuple[LaterBlocks, BlockOutputs]:
        """The later blocks of an encoder, and their inputs."""
        frozen, later = split_encoder(encoder, n)
        key = digest([images.key, encoder.record()["sha256"], n])
        return later, cls(images, frozen.to(images.device), key, cache)

    @staticmethod
    @torch.inference_mode()
    def _compute(images: ImageInputs, frozen: nn.Module, path: Path) -> None:
        shape = tuple(frozen(images.batch(torch.zeros(1, dtype=torch.int64))).shape[1:])
        outputs = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(len(images), 2, *shape))
        for rows in torch.split(torch.arange(len(images)), _BATCH):
            pixels = images.batch(rows)
            for side, batch in enumerate((pixels, pixels.flip(-1))):
                made = frozen(batch).clamp(-_LARGEST, _LARGEST).to(torch.float16)
                outputs[rows[0] : rows[-1] + 1, side] = made.cpu().contiguous().numpy()
            report(int(rows[-1]) + 1, len(images), "frozen blocks")
        outputs.flush()

    def __len__(self) -> int:
        return len(self.outputs)

    def batch(self, rows: Tensor) -> Tensor:
        """[b] → [b, channels, height, width]"""
        return self._read(rows, np.zeros(len(rows), dtype=np.int64))

    def augmented(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """The same, of mirror images for half of the rows, by the generator."""
        return self._read(rows, torch.randint(0, 2, (len(rows),), generator=generator).numpy())

    def _read(self, rows: Tensor, sides: Any) -> Tensor:
        maps = torch.from_numpy(self.outputs[rows.cpu().numpy(), sides]).to(self.device, torch.float32)
        return maps.contiguous(memory_format=torch.channels_last)
