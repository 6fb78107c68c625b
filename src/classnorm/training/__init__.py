"""Training: the epoch driver, the batch loop, optimizers, schedules and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.registry import lazy_names
from classnorm.training.context import FitContext, History, SharedWork
from classnorm.training.device import Device, Precision, autocast, pick_device, pick_dtype, precision_notice
from classnorm.training.distributed import SINGLE_PROCESS, Processes, process_group
from classnorm.training.schedule import Schedule, TrainingConfig, learning_rate, make_optimizer

if TYPE_CHECKING:
    from classnorm.training.epochs import EpochLosses, run_epochs, seeded
    from classnorm.training.loop import Batches, Stage, gradient_step, stage, stage_seconds, train
    from classnorm.training.stored_rows import StoredRows

__all__ = [
    "SINGLE_PROCESS",
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
    "learning_rate",
    "make_optimizer",
    "pick_device",
    "pick_dtype",
    "precision_notice",
    "process_group",
    "run_epochs",
    "seeded",
    "stage",
    "stage_seconds",
    "train",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "epochs": "EpochLosses run_epochs seeded",
        "loop": "Batches Stage gradient_step stage stage_seconds train",
        "stored_rows": "StoredRows",
    },
)  # they need PyTorch
