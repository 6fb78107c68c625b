"""The training loop over batches of rows, for any model and loss, and where the time of its steps goes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from classnorm.progress import report
from classnorm.training.context import FitContext, History
from classnorm.training.device import Precision, autocast, pick_dtype
from classnorm.training.distributed import SINGLE_PROCESS, Processes
from classnorm.training.epochs import EpochLosses, run_epochs, seeded
from classnorm.training.schedule import TrainingConfig, learning_rate, make_optimizer
from classnorm.training.stored_rows import ShuffledPools, StoredRows

_SCALE = 1024.0  # of losses in float16 at first; too large a scale costs a step, and is halved
_NO_SCALING = torch.amp.GradScaler(enabled=False)
_SECONDS_BETWEEN_REPORTS = 5.0  # of progress within an epoch


class Batches(Protocol):
    """The rows of each step. An epoch's batches may depend only on its number, so that training can resume."""

    def __len__(self) -> int:
        """Steps per epoch."""

    def epoch(self, number: int) -> Iterator[Tensor]:
        """Row indices of each batch of an epoch, numbered from 0, on the model's device."""


@dataclass(frozen=True)
class ShuffledRows:
    """Every row once per epoch, shuffled by (seed, epoch); the last batch may be smaller."""

    n: int
    size: int
    seed: int
    device: torch.device

    def __len__(self) -> int:
        return math.ceil(self.n / self.size)

    def epoch(self, number: int) -> Iterator[Tensor]:
        order = torch.randperm(self.n, generator=seeded(self.seed, number))
        yield from torch.split(order.to(self.device), self.size)


@dataclass(frozen=True, eq=False)
class _Gathered:
    """Batches of rows in memory."""

    features: Tensor
    labels: Tensor
    batches: Batches
    processes: Processes

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Features and labels of this process's part of each batch, and its share of the batch."""
        for rows in self.batches.epoch(number):
            part, share = self.processes.batch_part(len(rows))
            own = rows[part]
            yield self.features.index_select(0, own), self.labels.index_select(0, own), share


def _source(
    features: Tensor | StoredRows,
    labels: Tensor,
    size: int,
    seed: int,
    batches: Batches | None,
    processes: Processes,
) -> _Gathered | ShuffledPools:
    if isinstance(features, StoredRows):
        return ShuffledPools(features, labels, size, seed, processes)
    batches = batches or ShuffledRows(len(labels), size, seed, features.device)
    return _Gathered(features, labels, batches, processes)


def train(
    model: nn.Module,
    loss: Callable[..., Tensor],
    features: Tensor | StoredRows,
    labels: Tensor,
    config: TrainingConfig,
    *,
    seed: int = 0,
    context: FitContext | None = None,
    batches: Batches | None = None,
    on_step: Callable[[int], None] | None = None,
    augment: Callable[[Tensor, Tensor], tuple[Tensor, ...]] | None = None,
    no_decay: Collection[nn.Parameter] = (),
    hint: str = "lower `lr`",
    precision: Precision = "float32",
) -> History:
    """Train `model` in place for a fixed number of epochs, without early stopping.

    Args:
        model: its trainable parameters are optimized, on their device.
        loss: (features [b, d_z], labels [b]) → scalar, a mean over rows.
        features: [n, d_z] on the model's device, or rows that stay in files.
        labels: [n].
        seed: seed of the row order, which depends only on (seed, epoch).
        context: checkpoints, and the processes among which each batch is divided; without one, nothing is reported.
        batches: rows of each step, of rows in memory; by default all in shuffled batches of ``config.batch_size``.
        on_step: called with the number of each step before its batch is drawn.
        augment: changes a batch before it is divided; what it returns after features and labels is passed to `loss`.
        no_decay: parameters exempt from weight decay.
        hint: likely remedy, for the error message on divergence.
        precision: of the products in `loss`; weights, gradients and the loss itself are in float32.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    device = parameters[0].device
    optimizer = make_optimizer(_groups(parameters, no_decay) if no_decay else parameters, config, device)
    dtype = pick_dtype(precision, device)
    is_narrow = dtype == torch.float16  # small gradients would become 0
    scaler = torch.amp.GradScaler(device.type, init_scale=_SCALE, enabled=is_narrow)
    processes = context.processes if context else SINGLE_PROCESS
    readers = processes if augment is None else SINGLE_PROCESS  # it needs whole batches
    source = _source(features, labels, config.batch_size, seed, batches, readers)
    steps_per_epoch = len(source)
    total_steps = config.epochs * steps_per_epoch

    def epoch(number: int) -> EpochLosses:
        reported = time.monotonic()
        losses = torch.zeros(steps_per_epoch, device=device)
        batches = source.epoch(number)
        first = number * steps_per_epoch
        for i in range(steps_per_epoch):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, first + i, total_steps)
            if on_step:
                on_step(first + i)
            with stage("gather"):
                *batch, share = next(batches)
            if augment is not None:
                x, y, *more = augment(*batch)
                part, share = processes.batch_part(len(y))
                batch = [x[part], y[part], *more]
            with autocast(dtype, device):
                value = loss(*batch)
            add_up = partial(processes.add_up_gradients, parameters, share)
            gradient_step(optimizer, value, parameters, config.grad_clip, add_up, scaler)
            losses[i] = share * value.detach()
            if context and time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                report(number, config.epochs, f"step {i + 1} of {steps_per_epoch}")
        processes.add_up(losses)
        return EpochLosses(losses, learning_rate(config, first, total_steps))

    model.train()
    history = run_epochs(epoch, config.epochs, model, optimizer, context, hint=hint)
    model.eval()
    return history


def gradient_step(
    optimizer: torch.optim.Optimizer,
    loss: Tensor,
    parameters: Iterable[nn.Parameter] = (),
    grad_clip: float = 0.0,
    before_clipping: Callable[[], None] | None = None,
    scaler: torch.amp.GradScaler = _NO_SCALING,
) -> None:
    """One optimizer step on `loss`; `grad_clip` limits the gradient norm over `parameters`, 0 does not clip."""
    with stage("backward"):
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    if before_clipping:
        before_clipping()
    with stage("optimizer"):
        scaler.unscale_(optimizer)
        if grad_clip:
            nn.utils.clip_grad_norm_(parameters, grad_clip)
        scaler.step(optimizer)
        scaler.update()


def _groups(parameters: list[nn.Parameter], no_decay: Collection[nn.Parameter]) -> list[dict[str, Any]]:
    """Two parameter groups, the second without weight decay."""
    exempt = {id(parameter) for parameter in no_decay}
    return [
        {"params": [parameter for parameter in parameters if id(parameter) not in exempt]},
        {"params": [parameter for parameter in parameters if id(parameter) in exempt], "weight_decay": 0.0},
    ]


Stage = Literal["gather", "embedder", "logits", "backward", "optimizer"]

_seconds: ContextVar[dict[Stage, float] | None] = ContextVar("seconds of stages", default=None)


class stage:  # noqa: N801 (used like a function)
    """Marks a stage of a training step. Costs next to nothing unless `stage_seconds` is active."""

    __slots__ = ("name", "started")

    def __init__(self, name: Stage) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        seconds = _seconds.get()
        if seconds is not None:
            seconds[self.name] = seconds.get(self.name, 0.0) + time.perf_counter() - self.started


@contextmanager
def stage_seconds() -> Iterator[dict[Stage, float]]:
    """Collect the seconds of every stage inside the block. An accelerator runs behind: there they mean little.

    >>> with stage_seconds() as seconds:
    ...     with stage("gather"):
    ...         pass
    >>> list(seconds)
    ['gather']
    """
    seconds: dict[Stage, float] = {}
    token = _seconds.set(seconds)
    try:
        yield seconds
    finally:
        _seconds.reset(token)
