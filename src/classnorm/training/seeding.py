"""Random numbers that depend on a seed and a stage alone, so that a resumed training draws the same ones."""

from __future__ import annotations

import torch

__all__ = ["seeded"]


def seeded(seed: int, *stage: int, generator: torch.Generator | None = None) -> torch.Generator:
    """A CPU generator for a stage of a training, like an epoch or (task, epoch); `generator` is seeded in place."""
    for number in stage:
        seed = seed * 1_000_003 + number
    return (generator or torch.Generator()).manual_seed(seed % 2**63)
