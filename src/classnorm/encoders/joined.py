"""Several encoders as one: their features side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from classnorm.encoders.encoder import Encoder
from classnorm.encoders.preprocessing import Pixels, Preprocessing


@dataclass(frozen=True)
class _JoinedPreprocessing(Preprocessing):
    """Bytes of an image for all encoders in one row; `resize` and the other fields are those of the first encoder."""

    parts: tuple[Preprocessing, ...] = ()

    def pixels(self, image: Image.Image) -> Pixels:
        return np.concatenate([part.pixels(image).ravel() for part in self.parts])

    def normalize(self, pixels: Tensor) -> Tensor:
        """[n, bytes] unchanged: each encoder normalizes its own."""
        return pixels


class _JoinedModule(nn.Module):
    """[n, bytes] → [n, d_z]."""

    def __init__(self, parts: Sequence[Encoder]) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.modules_of_parts = nn.ModuleList(part.module for part in parts)

    def forward(self, pixels: Tensor) -> Tensor:
        shapes = [(p.preprocessing.crop, p.preprocessing.crop, len(p.preprocessing.mean)) for p in self.parts]
        chunks = torch.split(pixels, [a * b * channels for a, b, channels in shapes], dim=1)
        return torch.cat(
            [
                part.encode(part.preprocessing.normalize(chunk.reshape(-1, *shape)))
                for part, chunk, shape in zip(self.parts, chunks, shapes, strict=True)
            ],
            dim=1,
        )


@dataclass(frozen=True, eq=False)
class JoinedEncoder(Encoder):
    """An encoder made of several."""

    parts: tuple[Encoder, ...] = ()

    def with_flip(self) -> Encoder:
        return joined([part.with_flip() for part in self.parts])

    @property
    def small(self) -> str | None:
        return "; ".join(part.small for part in self.parts if part.small) or None

    def record(self) -> dict[str, Any]:
        """The fields of the first encoder, and the records of all."""
        own = super().record()
        return own | {
            "preprocessing": asdict(self.parts[0].preprocessing),
            "parts": [part.record() for part in self.parts],
        }


def joined(parts: Sequence[Encoder]) -> JoinedEncoder:
    """The encoder whose features are those of all parts."""
    first = asdict(parts[0].preprocessing)
    return JoinedEncoder(
        "+".join(part.name for part in parts),
        _JoinedModule(parts),
        _JoinedPreprocessing(**first, parts=tuple(part.preprocessing for part in parts)),
        sum(part.d_z for part in parts),
        " + ".join(part.weights for part in parts),
        parts=tuple(parts),
    )
