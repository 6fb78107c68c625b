"""Where and how a training runs: device, progress, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from classnorm.progress import OnProgress

__all__ = ["FitContext"]


@dataclass(frozen=True)
class FitContext:
    """Where and how a training runs; nothing in it changes the result."""

    device: torch.device
    progress: OnProgress | None = None
    checkpoint: Path | None = None
    """File for the state of the training; None keeps none."""
    checkpoint_every: int = 0
    """Epochs between two checkpoints; 0 writes none."""
    resume: bool = False
    """Continue from the checkpoint if there is one."""
    key: str = ""
    """Identifies everything that decides the result; a checkpoint with another key is refused."""
