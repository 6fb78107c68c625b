"""The one training loop. It knows rows, labels and a loss; not which method it trains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from classnorm.errors import TrainingError
from classnorm.training.checkpoint import load_checkpoint, save_checkpoint
from classnorm.training.schedule import TrainingConfig, learning_rate, make_optimizer
from classnorm.training.seeding import seeded

__all__ = ["Batches", "Checkpoints", "Epoch", "History", "Progress", "train"]

History = list[dict[str, float]]
"""One record per epoch: `epoch`, `loss`, `lr`, `seconds`."""


@dataclass(frozen=True)
class Epoch:
    """What a progress callback is told."""

    number: int
    total: int
    loss: float


Progress = Callable[[Epoch], None]


@dataclass(frozen=True)
class Checkpoints:
    """Where a training keeps its state, so that an interrupted one can go on."""

    path: Path
    key: str
    """Names everything that decides the result; a checkpoint with another key is refused."""
    every: int = 0
    """Epochs between two; 0 writes none."""
    resume: bool = False


class Batches(Protocol):
    """Which rows each step sees. An epoch's batches may depend on its number alone, so that a training can resume."""

    def __len__(self) -> int:
        """Steps of an epoch."""

    def epoch(self, number: int) -> Iterator[Tensor]:
        """Row numbers of each batch of an epoch (counted from 0), on the model's device."""


@dataclass(frozen=True)
class ShuffledRows:
    """Every row once an epoch, in an order that depends on (seed, epoch); the last batch may be smaller."""

    n: int
    size: int
    seed: int
    device: torch.device

    def __len__(self) -> int:
        return math.ceil(self.n / self.size)

    def epoch(self, number: int) -> Iterator[Tensor]:
        generator = seeded(self.seed, number)
        yield from torch.split(torch.randperm(self.n, generator=generator).to(self.device), self.size)


def train(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    features: Tensor,
    labels: Tensor,
    config: TrainingConfig,
    *,
    seed: int = 0,
    batches: Batches | None = None,
    on_step: Callable[[int], None] | None = None,
    no_decay: Collection[nn.Parameter] = (),
    checkpoints: Checkpoints | None = None,
    progress: Progress | None = None,
    hint: str = "lower the learning rate",
) -> History:
    """Train `model` for a fixed number of epochs; nothing is selected on the way.

    Args:
        model: in place; its parameters are optimized, and it decides the device.
        loss: (features [b, d_z], labels [b]) → scalar.
        features: [n, d_z] on the model's device.
        labels: [n].
        seed: of the order of rows. The order of an epoch depends on (seed, epoch) alone, so a resumed training sees
            the same batches.
        batches: what the steps see, instead of all rows in shuffled batches of ``config.batch_size``.
        on_step: told the number of each step before it, for a loss that draws random numbers.
        no_decay: parameters without weight decay.
        hint: likely remedy, for the error message if the loss diverges.
    """
    config.check()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    device = parameters[0].device
    optimizer = make_optimizer(_groups(parameters, no_decay) if no_decay else parameters, config, device)
    batches = batches or ShuffledRows(len(labels), config.batch_size, seed, device)
    history: History = []
    if checkpoints and checkpoints.resume and checkpoints.path.exists():
        history = load_checkpoint(checkpoints.path, model, optimizer, checkpoints.key)

    steps_per_epoch = len(batches)
    total_steps = config.epochs * steps_per_epoch
    model.train()
    for epoch in range(len(history), config.epochs):
        started = time.perf_counter()
        # Losses stay on the device until the epoch ends: reading one would wait for an accelerator at every step.
        losses = torch.zeros(steps_per_epoch, device=device)
        for i, rows in enumerate(batches.epoch(epoch)):
            step = epoch * steps_per_epoch + i
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, step, total_steps)
            if on_step:
                on_step(step)
            value = loss(features.index_select(0, rows), labels.index_select(0, rows))
            optimizer.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call]
            if config.grad_clip:
                nn.utils.clip_grad_norm_(parameters, config.grad_clip)
            optimizer.step()
            losses[i] = value.detach()
        rate = learning_rate(config, epoch * steps_per_epoch, total_steps)
        mean = _mean_loss(losses, epoch, steps_per_epoch, rate, history, hint)
        history.append(
            {"epoch": epoch + 1, "loss": mean, "lr": rate, "seconds": round(time.perf_counter() - started, 4)}
        )
        last = epoch + 1 == config.epochs
        if checkpoints and checkpoints.every and (last or (epoch + 1) % checkpoints.every == 0):
            save_checkpoint(checkpoints.path, model, optimizer, checkpoints.key, history)
        if progress:
            progress(Epoch(epoch + 1, config.epochs, mean))
    model.eval()
    return history


def _groups(parameters: list[nn.Parameter], no_decay: Collection[nn.Parameter]) -> list[dict[str, Any]]:
    """The parameters as two groups, the second without weight decay."""
    free = {id(parameter) for parameter in no_decay}
    return [
        {"params": [parameter for parameter in parameters if id(parameter) not in free]},
        {"params": [parameter for parameter in parameters if id(parameter) in free], "weight_decay": 0.0},
    ]


def _mean_loss(losses: Tensor, epoch: int, steps_per_epoch: int, rate: float, history: History, hint: str) -> float:
    """Mean loss of the epoch, or the error that says where it stopped being one."""
    bad = (~losses.isfinite()).nonzero()
    if len(bad):
        step = epoch * steps_per_epoch + int(bad[0]) + 1
        raise TrainingError(
            f"training diverged: the loss is not finite at step {step} "
            f"(epoch {epoch + 1}, learning rate {rate:g}); {hint}"
        )
    mean = float(losses.mean())
    if history and mean > 100.0 * max(history[0]["loss"], 1.0):
        raise TrainingError(
            f"training diverged: the loss rose from {history[0]['loss']:.3g} to {mean:.3g} by step "
            f"{(epoch + 1) * steps_per_epoch} (epoch {epoch + 1}, learning rate {rate:g}); {hint}"
        )
    return mean
