"""The epoch driver: history, checkpoints, progress and divergence checks for every training loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from classnorm.errors import ConfigError, DivergedError
from classnorm.progress import report
from classnorm.training.checkpoint import load_checkpoint, save_checkpoint
from classnorm.training.context import FitContext, History


class EpochLosses(NamedTuple):
    """The losses of an epoch."""

    losses: Tensor
    """[n_steps], on the device: reading a loss at every step would stall an accelerator."""
    lr: float
    """Learning rate of the first step."""


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
    """Train for a fixed number of epochs, without early stopping.

    Args:
        epoch_function: trains for one epoch, numbered from 0. Its random draws may depend only on that number, so that
            a resumed run sees the same batches.
        model: stored in checkpoints, together with the optimizer state.
        where: the stage of the work, for the error message on divergence.
        hint: the likely remedy, for the same message.
        largest_rise: a mean epoch loss above this multiple of the first one counts as divergence.

    Raises:
        DivergedError: if a loss is not finite or has risen too far.
    """
    history: History = []
    reports = context is not None  # else it is a small part of a fit, such as a classifier of generated rows
    context = context or FitContext(torch.device("cpu"))
    path, every = context.checkpoint, context.checkpoint_every
    if path and context.resume and path.exists():
        history = load_checkpoint(path, model, optimizer, context.key)
        context.earlier.append(list(history))
    if context.processes.from_first(len(history)) != len(history):
        raise ConfigError(f"{path}: not the same for all processes; `out` must be a folder that all machines share")
    for epoch in range(len(history), epochs):
        started, cpu = time.perf_counter(), time.process_time()
        losses, rate = epoch_function(epoch)
        problem = _divergence(losses, epoch, history, largest_rise, where)
        if problem:
            raise DivergedError(f"training diverged: {problem} (epoch {epoch + 1}, learning rate {rate:g}); {hint}")
        mean = float(losses.mean())
        seconds, cpu_seconds = round(time.perf_counter() - started, 4), round(time.process_time() - cpu, 4)
        history.append({"epoch": epoch + 1, "loss": mean, "lr": rate, "seconds": seconds, "cpu_seconds": cpu_seconds})
        if path and context.processes.is_first and every and (epoch + 1 == epochs or (epoch + 1) % every == 0):
            save_checkpoint(path, model, optimizer, context.key, history)
        if reports:
            report(epoch + 1, epochs, f"loss {mean:.3f}")
    return history


def _divergence(losses: Tensor, epoch: int, history: History, largest_rise: float, where: str) -> str:
    """The evidence of divergence; empty if there is none."""
    bad = (~losses.isfinite()).nonzero()
    if len(bad):
        return f"the loss is not finite at step {epoch * len(losses) + int(bad[0]) + 1}{where}"
    mean = float(losses.mean())
    if history and mean > largest_rise * max(history[0]["loss"], 1.0):
        step = (epoch + 1) * len(losses)
        return f"the loss rose from {history[0]['loss']:.3g} to {mean:.3g} by step {step}{where}"
    return ""
