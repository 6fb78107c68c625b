"""Training: the epoch driver, the batch loop, optimizers, schedules and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.lazy import lazy_names
from classnorm.training.context import FitContext, History, SharedWork
from classnorm.training.device import Device, pick_device
from classnorm.training.distributed import ALONE, Processes, joined
from classnorm.training.precision import Precision, autocast, pick_dtype, precision_notice
from classnorm.training.schedule import Schedule, TrainingConfig, learning_rate, make_optimizer
from classnorm.training.stages import Stage, stage, stage_seconds

if TYPE_CHECKING:
    from classnorm.training.epochs import EpochLosses, run_epochs
    from classnorm.training.loop import Batches, gradient_step, train
    from classnorm.training.seeding import seeded
    from classnorm.training.stored_rows import StoredRows

__all__ = [
    "ALONE",
    "Batches",
    "Device",
    "EpochLosses",
    "FitContext",
    "History",
    "Precision",
    "Processes",
    "Schedule",
    "SharedWork",
    "Stage",
    "StoredRows",
    "TrainingConfig",
    "autocast",
    "gradient_step",
    "joined",
    "learning_rate",
    "make_optimizer",
    "pick_device",
    "pick_dtype",
    "precision_notice",
    "run_epochs",
    "seeded",
    "stage",
    "stage_seconds",
    "train",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "epochs": "EpochLosses run_epochs",
        "loop": "Batches gradient_step train",
        "seeding": "seeded",
        "stored_rows": "StoredRows",
    },
)  # they need PyTorch
