"""The one training loop. It knows rows, labels and a loss; not which method it trains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from classnorm.errors import TrainingError
from classnorm.training.checkpoint import load_checkpoint, save_checkpoint
from classnorm.training.schedule import TrainingConfig, learning_rate, make_optimizer

__all__ = ["Checkpoints", "Epoch", "History", "Progress", "train"]

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


def train(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    features: Tensor,
    labels: Tensor,
    config: TrainingConfig,
    *,
    seed: int = 0,
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
        hint: likely remedy, for the error message if the loss diverges.
    """
    config.check()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    device = parameters[0].device
    optimizer = make_optimizer(parameters, config, device)
    history: History = []
    if checkpoints and checkpoints.resume and checkpoints.path.exists():
        history = load_checkpoint(checkpoints.path, model, optimizer, checkpoints.key)

    steps_per_epoch = math.ceil(len(labels) / config.batch_size)
    total_steps = config.epochs * steps_per_epoch
    model.train()
    for epoch in range(len(history), config.epochs):
        started = time.perf_counter()
        # Losses stay on the device until the epoch ends: reading one would wait for an accelerator at every step.
        losses = torch.zeros(steps_per_epoch, device=device)
        for i, rows in enumerate(_batches(len(labels), config.batch_size, seed, epoch, device)):
            step = epoch * steps_per_epoch + i
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, step, total_steps)
            value = loss(features.index_select(0, rows), labels.index_select(0, rows))
            optimizer.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call]
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


def _batches(n: int, size: int, seed: int, epoch: int, device: torch.device) -> Iterator[Tensor]:
    """Row numbers of the batches of an epoch; the last one may be smaller."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    yield from torch.split(torch.randperm(n, generator=generator).to(device), size)


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
