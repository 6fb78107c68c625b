"""Training: the epoch driver, the batch loop, optimizers, schedules and checkpoints."""

from classnorm.training.context import FitContext, SharedWork
from classnorm.training.device import Device, pick_device
from classnorm.training.epochs import EpochLosses, History, run_epochs
from classnorm.training.loop import Batches, gradient_step, train
from classnorm.training.schedule import Schedule, TrainingConfig, learning_rate, make_optimizer
from classnorm.training.seeding import seeded
from classnorm.training.stages import Stage, stage, stage_seconds

__all__ = [
    "Batches",
    "Device",
    "EpochLosses",
    "FitContext",
    "History",
    "Schedule",
    "SharedWork",
    "Stage",
    "TrainingConfig",
    "gradient_step",
    "learning_rate",
    "make_optimizer",
    "pick_device",
    "run_epochs",
    "seeded",
    "stage",
    "stage_seconds",
    "train",
]
