"""Training with some of the classes in each step, where all of them would take too long."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from classnorm.nn import ClassSample, sample_classes
from classnorm.training import seeded

_ALL_UP_TO = 2000  # seen classes, for `auto`
_SAMPLE = 1024
_STREAM = 1  # tells these draws from others of the same step


class ClassSampler:
    """Draws classes for each step; the draws depend only on (seed, step)."""

    def __init__(self, n_classes: int, size: int, seed: int) -> None:
        self.n_classes, self.size, self.seed = n_classes, size, seed
        self.generator = torch.Generator()

    @classmethod
    def of(cls, setting: int | Literal["auto"], n_classes: int, seed: int) -> ClassSampler | None:
        """The sampler for a setting `sampled_classes`; None to train with all classes."""
        size = setting if setting != "auto" else _SAMPLE if n_classes > _ALL_UP_TO else 0
        return cls(n_classes, size, seed) if 0 < size < n_classes else None

    def start(self, step: int) -> None:
        """Seed the draws of a step."""
        seeded(self.seed, step, _STREAM, generator=self.generator)

    def __call__(self, labels: Tensor) -> ClassSample:
        return sample_classes(labels, self.n_classes, self.size, self.generator)
