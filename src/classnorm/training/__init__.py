"""The one training loop: batches, optimizers, schedules, checkpoint and resume."""

from classnorm.training.device import Device, pick_device
from classnorm.training.loop import Batches, Checkpoints, Epoch, History, Progress, train
from classnorm.training.schedule import Schedule, TrainingConfig, learning_rate, make_optimizer
from classnorm.training.seeding import seeded

__all__ = [
    "Batches",
    "Checkpoints",
    "Device",
    "Epoch",
    "History",
    "Progress",
    "Schedule",
    "TrainingConfig",
    "learning_rate",
    "make_optimizer",
    "pick_device",
    "seeded",
    "train",
]
