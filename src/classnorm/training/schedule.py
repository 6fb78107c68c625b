"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from classnorm.errors import ConfigError
from classnorm.settings import Config, Count, NotNegative, Positive, Steps

if TYPE_CHECKING:
    import torch
    from torch import nn

Schedule = Literal["constant", "step", "steps", "cosine", "inverse"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """Settings of the training loop. The defaults are those of the authors' released code."""

    epochs: Steps = 50
    """Passes over the training rows; the final model is kept."""
    batch_size: Count = 256
    """Rows per step."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimizer: `adam` and `sgd` add weight decay to the gradient, `adamw` decays the weights directly."""
    lr: Positive = 5e-4
    """Learning rate."""
    weight_decay: NotNegative = 1e-4
    """L2 penalty of the weights."""
    momentum: NotNegative = 0.9
    """Momentum of SGD."""
    schedule: Schedule = "step"
    """Learning rate: `constant`, one drop by `lr_drop` (`step`), repeated drops (`steps`), a `cosine` to 0, or
    `inverse`: times (1 + step/100)^(−3/4)."""
    lr_drop: NotNegative = 0.1
    """Factor of each learning-rate drop."""
    lr_drop_at: NotNegative = 0.5
    """Share of training before the drop of `step`, or between the drops of `steps`."""
    grad_clip: NotNegative = 0.0
    """Largest gradient norm over all weights; 0 does not clip."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "steps" and self.lr_drop_at == 0:
            raise ConfigError("lr_drop_at is 0; the schedule steps needs a positive share between its drops")


def learning_rate(config: TrainingConfig, step: int, total_steps: int) -> float:
    """The learning rate of a step, numbered from 0.

    >>> config = TrainingConfig(lr=1.0)
    >>> [learning_rate(config, step, 10) for step in (0, 4, 5, 9)]
    [1.0, 1.0, 0.1, 0.1]
    """
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1.0 + math.cos(math.pi * step / total_steps))
    if config.schedule == "inverse":
        return float(config.lr * (1.0 + 0.01 * step) ** -0.75)
    if config.schedule == "step" and step >= config.lr_drop_at * total_steps:
        return config.lr * config.lr_drop
    if config.schedule == "steps":
        # The addend keeps drops on their step when the share, like 0.15, is not an exact binary number.
        return config.lr * config.lr_drop ** int(step / (config.lr_drop_at * total_steps) + 1e-9)
    return config.lr


def make_optimizer(
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]], config: TrainingConfig, device: torch.device
) -> torch.optim.Optimizer:
    """The configured optimizer, fused where PyTorch supports it: one pass over the weights instead of a dozen.

    `parameters` may be parameter groups, as in `torch.optim`.
    """
    import torch

    fused = device.type in ("cpu", "cuda")
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=fused
        )
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, config.lr, weight_decay=config.weight_decay, fused=fused)
