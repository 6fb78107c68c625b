"""How a training run is executed: device, checkpoints, processes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm.training.distributed import SINGLE_PROCESS, Processes

if TYPE_CHECKING:
    import torch

History = list[dict[str, float]]
"""One record per epoch: `epoch`, `loss`, `lr`, `seconds`, `cpu_seconds`."""


@dataclass(frozen=True, eq=False)
class SharedWork:
    """Sums over rows that the fits of one job, on validation splits and on all training rows, compute only once."""

    cells: npt.NDArray[np.int64]
    """[n_rows of the dataset]; of the rows with the same number, a fit has all in training or none."""
    results: dict[Hashable, Any] = field(default_factory=dict)
    """By the cell and whatever else they depend on."""


@dataclass(frozen=True)
class FitContext:
    """How a training run is executed; nothing in it changes the result."""

    device: torch.device
    checkpoint: Path | None = None
    """Checkpoint file, or None for no checkpoints."""
    checkpoint_every: int = 0
    """Epochs between checkpoints; 0 writes none."""
    resume: bool = False
    """Continue from the checkpoint if it exists."""
    key: str = ""
    """Identifies everything that determines the result; a checkpoint with another key is refused."""
    shared: SharedWork | None = None
    """Work shared with other fits of the job."""
    earlier: list[History] = field(default_factory=list)
    """Filled by a training that resumes: the epochs that an interrupted one has run."""
    processes: Processes = SINGLE_PROCESS
    """Processes that train together. All do the same with the same context, each on its part of the rows."""
