"""The training loop over batches of rows. It knows features, labels and a loss; not which method it trains."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from classnorm.training.context import FitContext
from classnorm.training.epochs import EpochLosses, History, run_epochs
from classnorm.training.schedule import TrainingConfig, learning_rate, make_optimizer
from classnorm.training.seeding import seeded

__all__ = ["Batches", "gradient_step", "train"]


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
    context: FitContext | None = None,
    batches: Batches | None = None,
    on_step: Callable[[int], None] | None = None,
    no_decay: Collection[nn.Parameter] = (),
    hint: str = "lower `lr`",
) -> History:
    """Train `model` for a fixed number of epochs; nothing is selected on the way.

    Args:
        model: in place; its parameters are optimized, and it decides the device.
        loss: (features [b, d_z], labels [b]) → scalar.
        features: [n, d_z] on the model's device.
        labels: [n].
        seed: of the order of rows. The order of an epoch depends on (seed, epoch) alone, so a resumed training sees
            the same batches.
        context: progress and checkpoints.
        batches: what the steps see, instead of all rows in shuffled batches of ``config.batch_size``.
        on_step: called with the number of each step before its batch is drawn, for a loss that draws random numbers.
        no_decay: parameters without weight decay.
        hint: likely remedy, for the error message if the loss diverges.
    """
    config.check()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    device = parameters[0].device
    optimizer = make_optimizer(_groups(parameters, no_decay) if no_decay else parameters, config, device)
    batches = batches or ShuffledRows(len(labels), config.batch_size, seed, device)
    steps_per_epoch = len(batches)
    total_steps = config.epochs * steps_per_epoch

    def epoch(number: int) -> EpochLosses:
        losses = torch.zeros(steps_per_epoch, device=device)
        rows_of_steps = batches.epoch(number)
        first = number * steps_per_epoch
        for i in range(steps_per_epoch):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, first + i, total_steps)
            if on_step:
                on_step(first + i)
            rows = next(rows_of_steps)
            value = loss(features.index_select(0, rows), labels.index_select(0, rows))
            gradient_step(optimizer, value, parameters, config.grad_clip)
            losses[i] = value.detach()
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
) -> None:
    """One step down the gradient of `loss`, its norm over `parameters` clipped to `grad_clip` unless that is 0."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    if before_clipping:
        before_clipping()
    if grad_clip:
        nn.utils.clip_grad_norm_(parameters, grad_clip)
    optimizer.step()


def _groups(parameters: list[nn.Parameter], no_decay: Collection[nn.Parameter]) -> list[dict[str, Any]]:
    """The parameters as two groups, the second without weight decay."""
    free = {id(parameter) for parameter in no_decay}
    return [
        {"params": [parameter for parameter in parameters if id(parameter) not in free]},
        {"params": [parameter for parameter in parameters if id(parameter) in free], "weight_decay": 0.0},
    ]
