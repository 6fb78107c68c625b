"""How a training run is executed: device, progress, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from classnorm.progress import OnProgress

__all__ = ["FitContext"]


@dataclass(frozen=True)
class FitContext:
    """How a training run is executed; nothing in it changes the result."""

    device: torch.device
    progress: OnProgress | None = None
    checkpoint: Path | None = None
    """Checkpoint file, or None for no checkpoints."""
    checkpoint_every: int = 0
    """Epochs between checkpoints; 0 writes none."""
    resume: bool = False
    """Continue from the checkpoint if it exists."""
    key: str = ""
    """Identifies everything that determines the result; a checkpoint with another key is refused."""
