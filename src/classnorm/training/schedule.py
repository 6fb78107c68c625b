"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from classnorm.errors import ConfigError

__all__ = ["Schedule", "TrainingConfig", "learning_rate", "make_optimizer"]


Schedule = Literal["constant", "step", "steps", "cosine"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the one training loop trains. The defaults are those of the authors' released run."""

    epochs: int = 50
    """Passes over the training rows; the model of the last one is the result."""
    batch_size: int = 256
    """Rows per step."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Adam and SGD add weight decay to the gradient; AdamW decays the weights themselves."""
    lr: float = 5e-4
    """Learning rate."""
    weight_decay: float = 1e-4
    """L2 penalty of the weights."""
    momentum: float = 0.9
    """Momentum of SGD."""
    schedule: Schedule = "step"
    """How the learning rate falls: not at all, once by `lr_drop`, again and again by it, or along a cosine to 0."""
    lr_drop: float = 0.1
    """Factor of the step schedules."""
    lr_drop_at: float = 0.5
    """When the step schedule drops, as a share of the training; `steps` drops each time this share has passed."""
    grad_clip: float = 0.0
    """Largest norm of the gradient of all weights; 0 does not clip."""

    def check(self) -> None:
        """Raise a `ConfigError` for a value that cannot work."""
        for name, low in (("epochs", 1), ("batch_size", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least {low}")
        for name in ("lr", "weight_decay", "momentum", "lr_drop", "lr_drop_at", "grad_clip"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (name == "lr" and value == 0):
                raise ConfigError(f"{name} is {value}; it must be {'positive' if name == 'lr' else 'at least 0'}")
        if self.schedule == "steps" and self.lr_drop_at == 0:
            raise ConfigError("lr_drop_at is 0; the schedule steps needs a positive share between its drops")


def learning_rate(config: TrainingConfig, step: int, total_steps: int) -> float:
    """The learning rate of a step (counted from 0).

    >>> config = TrainingConfig(lr=1.0)
    >>> [learning_rate(config, step, 10) for step in (0, 4, 5, 9)]
    [1.0, 1.0, 0.1, 0.1]
    """
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1.0 + math.cos(math.pi * step / total_steps))
    if config.schedule == "step" and step >= config.lr_drop_at * total_steps:
        return config.lr * config.lr_drop
    if config.schedule == "steps":
        # The small addend keeps a drop at its step where the share, like 0.15, is no exact binary number.
        return config.lr * config.lr_drop ** int(step / (config.lr_drop_at * total_steps) + 1e-9)
    return config.lr


def make_optimizer(
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]], config: TrainingConfig, device: torch.device
) -> torch.optim.Optimizer:
    """The optimizer, in its fused form where there is one: one pass over the weights instead of a dozen.

    Parameters may come in groups with settings of their own, as `torch.optim` takes them.
    """
    fused = device.type in ("cpu", "cuda")
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=fused
        )
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, config.lr, weight_decay=config.weight_decay, fused=fused)
