"""Random numbers that depend only on a seed and a stage, so that a resumed run draws the same ones."""

from __future__ import annotations

import torch


def seeded(seed: int, *stage: int, generator: torch.Generator | None = None) -> torch.Generator:
    """A CPU generator for a stage of a run, like an epoch or (task, epoch); reseeds `generator` if given."""
    for number in stage:
        seed = seed * 1_000_003 + number
    return (generator or torch.Generator()).manual_seed(seed % 2**63)
