"""The epoch driver: history, checkpoint and resume, progress and divergence for everything that trains."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from classnorm.errors import DivergedError
from classnorm.progress import Progress
from classnorm.training.checkpoint import load_checkpoint, save_checkpoint
from classnorm.training.context import FitContext

__all__ = ["EpochLosses", "History", "run_epochs"]

History = list[dict[str, float]]
"""One record per epoch: `epoch`, `loss`, `lr`, `seconds`."""


class EpochLosses(NamedTuple):
    """The outcome of an epoch."""

    losses: Tensor
    """[n_steps]. On the device: reading a loss at every step would make an accelerator wait."""
    lr: float
    """The learning rate of its first step."""


def run_epochs(
    epoch_function: Callable[[int], EpochLosses],
    epochs: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    context: FitContext | None = None,
    *,
    where: str = "",
    hint: str = "lower `lr`",
    largest_rise: float = 100.0,
) -> History:
    """Train for a fixed number of epochs; nothing is selected on the way.

    Args:
        epoch_function: trains for one epoch, numbered from 0. Everything it draws may depend on that number alone, so
            that a resumed training continues with the same batches.
        model: what checkpoints store, together with the state of the optimizer.
        where, hint: for the error message if the training diverges: the part of the work, and the likely remedy.
        largest_rise: the mean loss of an epoch above this multiple of the first one counts as divergence.

    Raises:
        DivergedError: if a loss is not finite or has risen too far.
    """
    history: History = []
    path = context.checkpoint if context else None
    if context and path and context.resume and path.exists():
        history = load_checkpoint(path, model, optimizer, context.key)
    for epoch in range(len(history), epochs):
        started = time.perf_counter()
        losses, rate = epoch_function(epoch)
        problem = _divergence(losses, epoch, history, largest_rise, where)
        if problem:
            raise DivergedError(f"training diverged: {problem} (epoch {epoch + 1}, learning rate {rate:g}); {hint}")
        mean, seconds = float(losses.mean()), round(time.perf_counter() - started, 4)
        history.append({"epoch": epoch + 1, "loss": mean, "lr": rate, "seconds": seconds})
        every = context.checkpoint_every if context else 0
        if context and path and every and (epoch + 1 == epochs or (epoch + 1) % every == 0):
            save_checkpoint(path, model, optimizer, context.key, history)
        if context and context.progress:
            context.progress(Progress(epoch + 1, epochs, f"loss {mean:.3f}"))
    return history


def _divergence(losses: Tensor, epoch: int, history: History, largest_rise: float, where: str) -> str:
    """What shows that the training diverged; empty if it did not."""
    bad = (~losses.isfinite()).nonzero()
    if len(bad):
        return f"the loss is not finite at step {epoch * len(losses) + int(bad[0]) + 1}{where}"
    mean = float(losses.mean())
    if history and mean > largest_rise * max(history[0]["loss"], 1.0):
        step = (epoch + 1) * len(losses)
        return f"the loss rose from {history[0]['loss']:.3g} to {mean:.3g} by step {step}{where}"
    return ""
