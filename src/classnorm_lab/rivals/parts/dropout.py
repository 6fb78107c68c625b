"""Dropout that training can resume with."""

from __future__ import annotations

import torch
from torch import Tensor

from classnorm.training import seeded

_STREAM = 2  # tells these draws from others of the same step


class StepDropout:
    """Zeroes a share of the values and scales up the rest; the draws depend only on (seed, step)."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self.seed = share, seed
        self.generator = torch.Generator()

    def start(self, step: int) -> None:
        """Seed the draws of a step."""
        seeded(self.seed, step, _STREAM, generator=self.generator)

    def __call__(self, values: Tensor) -> Tensor:
        if not self.share:
            return values
        kept = torch.empty(values.shape).bernoulli_(1.0 - self.share, generator=self.generator)
        return values * kept.div_(1.0 - self.share).to(values.device)
