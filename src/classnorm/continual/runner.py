"""Runs a strategy through a stream and records what the scores need: the logits of the whole test set at each step."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from classnorm.continual.checkpoint import Record, load_record, save_record
from classnorm.continual.config import ContinualConfig
from classnorm.continual.inputs import FeatureInputs, Inputs
from classnorm.continual.model import Learner
from classnorm.continual.strategies import STRATEGIES, MemoryConfig, Problem, Strategy
from classnorm.continual.stream import TaskStream
from classnorm.data import recognise
from classnorm.errors import ConfigError, TrainingError, unknown_name
from classnorm.training import make_optimizer

__all__ = ["StreamProgress", "StreamResult", "TaskEpoch", "configure", "run_stream"]

_EVALUATED = 128  # rows scored together: memory stays bounded where an encoder sees images


@dataclass(frozen=True)
class TaskEpoch:
    """What a progress callback is told."""

    task: int
    tasks: int
    epoch: int
    epochs: int
    loss: float


StreamProgress = Callable[[TaskEpoch], None]


@dataclass(frozen=True, eq=False)
class StreamResult:
    """A finished run. `continual_scores(result.history, stream.test_labels, stream.tasks)` scores it."""

    history: list[npt.NDArray[np.float32]]
    """[n_test, n_classes] before the first task and after each."""
    losses: list[list[float]]
    """Mean loss of each epoch, task by task."""
    train_seconds: float
    """Spent on learning; recording is not counted."""
    learner: Learner
    """As it is after the last task."""


def configure(stream: TaskStream, strategy: str, **changes: Any) -> ContinualConfig:
    """The settings of a strategy for this stream, with some fields changed.

    No final ReLU where the features of the first task have either sign, and on SUN half the memory.
    """
    kind, dataset = _kind(strategy).Config, stream.dataset
    names = [field.name for field in fields(kind)]
    for name in changes:
        if name not in names:
            raise unknown_name("setting", name, names)
    config = kind(final_relu=bool((dataset.features[stream.train(0)] >= 0).all()))
    if isinstance(config, MemoryConfig) and recognise(dataset.class_names, dataset.n_rows) == "SUN":
        config = replace(config, memory_per_class=5)
    return replace(config, **changes)


def run_stream(
    stream: TaskStream,
    strategy: str,
    config: ContinualConfig | None = None,
    seed: int = 0,
    device: torch.device | None = None,
    folder: Path | None = None,
    resume: bool = False,
    progress: StreamProgress | None = None,
    encoder: nn.Module | None = None,
    inputs: Inputs | None = None,
) -> StreamResult:
    """Learn the tasks one after another.

    Args:
        config: of the strategy's own kind; None is `configure(stream, strategy)`.
        seed: of the initial weights and of the order of rows.
        device: None is the CPU.
        folder: keeps the state after each task and the logits of each step.
        resume: go on from what is in `folder`, to the same result as without the interruption.
        encoder: trained along if it has parameters that require a gradient; a copy, the one given stays as it is.
        inputs: what the encoder, or the learner itself, gets for each row of the dataset; None is its features.

    >>> from classnorm.data import synthetic, SyntheticConfig
    >>> stream = TaskStream.make(synthetic(SyntheticConfig(classes=6, unseen=2, rows=60, features=8)), tasks=3)
    >>> [logits.shape for logits in run_stream(stream, "sequential").history]
    [(30, 6), (30, 6), (30, 6), (30, 6)]
    """
    kind = _kind(strategy)
    config = configure(stream, strategy) if config is None else config
    if not isinstance(config, kind.Config):
        raise ConfigError(
            f"strategy {strategy} needs settings of its own, {kind.Config.__name__}, not {type(config).__name__}"
        )
    config.check()
    device = device or torch.device("cpu")
    inputs = FeatureInputs.of(stream.dataset, device) if inputs is None else inputs
    if len(inputs) != stream.dataset.n_rows:
        raise ConfigError(f"there are {len(inputs)} inputs for {stream.dataset.n_rows} rows of {stream.dataset.name}")
    encoder = copy.deepcopy(encoder).to(device) if encoder is not None else None
    key = _key(stream, strategy, config, seed, encoder) if folder else ""
    learner = Learner(config, stream.dataset.d_a, _feature_dim(inputs, encoder, device), seed, encoder).to(device)
    learned = kind(Problem.of(stream, learner, inputs, seed, device), config)

    def note(record: Record) -> None:
        """Record the logits of this moment and, in a folder, the state."""
        record.history.append(_record_logits(stream, learner, inputs, device))
        if folder:
            tensors = {f"model.{name}": value for name, value in learner.state_dict().items()}
            tensors |= {f"strategy.{name}": value for name, value in learned.state().items()}
            save_record(folder, key, record, tensors)

    found = load_record(folder, key, device) if folder and resume else None
    if found is None:
        record = Record()
        note(record)
    else:
        record, tensors = found
        learner.load_state_dict(_below("model.", tensors))
        learned.load_state(_below("strategy.", tensors))
    for task in range(len(record.losses), stream.n_tasks):
        started = time.perf_counter()
        record.losses.append(_learn_task(learned, task, progress))
        learner.eval()
        learned.after_task(task)
        record.seconds += time.perf_counter() - started
        note(record)
    return StreamResult(record.history, record.losses, record.seconds, learner.eval())


def _kind(strategy: str) -> type[Strategy]:
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
    return STRATEGIES[strategy]


def _learn_task(strategy: Strategy, task: int, progress: StreamProgress | None) -> list[float]:
    """Train on one task, with an optimizer of its own: momentum from the task before would pull the wrong way."""
    config, learner = strategy.config, strategy.problem.learner
    parameters = list(strategy.parameters.values())
    training = config.training(task)
    groups: list[dict[str, Any]] = [{"params": list(learner.embedder.parameters())}]
    trained = [p for p in learner.encoder.parameters() if p.requires_grad]
    if trained:
        rate = config.encoder_lr * config.lr_decay**task
        groups.append({"params": trained, "lr": rate, "momentum": config.encoder_momentum})
    device = parameters[0].device
    optimizer = make_optimizer(groups, training, device)
    means: list[float] = []
    learner.train()
    for epoch in range(config.epochs):
        batches = torch.split(strategy.rows(task, epoch), config.batch_size)
        # Losses stay on the device until the epoch ends: reading one would wait for an accelerator at every step.
        losses = torch.zeros(len(batches), device=device)
        for i, rows in enumerate(batches):
            loss = strategy.loss(task, rows)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            strategy.after_backward(task)
            if config.grad_clip:
                nn.utils.clip_grad_norm_(parameters, config.grad_clip)
            optimizer.step()
            losses[i] = loss.detach()
        means.append(float(losses.mean()))
        if not np.isfinite(means[-1]):
            raise TrainingError(
                f"training diverged: the loss is not finite in task {task + 1}, epoch {epoch + 1} "
                f"(learning rate {training.lr:g}); lower --lr"
            )
        if progress:
            progress(TaskEpoch(task + 1, len(strategy.problem.rows), epoch + 1, config.epochs, means[-1]))
    return means


@torch.inference_mode()
def _record_logits(
    stream: TaskStream, learner: Learner, inputs: Inputs, device: torch.device
) -> npt.NDArray[np.float32]:
    """[n_test, n_classes]; classes not seen yet are embedded like the others, with the running statistics."""
    learner.eval()
    prototypes = learner.prototypes(torch.from_numpy(stream.descriptors).to(device))
    result = np.empty((len(stream.test_rows), stream.n_classes), dtype=np.float32)
    for start in range(0, len(result), _EVALUATED):
        rows = torch.from_numpy(stream.test_rows[start : start + _EVALUATED]).to(device)
        result[start : start + _EVALUATED] = learner.logits(inputs.batch(rows), prototypes).float().cpu().numpy()
    if not np.isfinite(result).all():
        raise TrainingError("training diverged: the scores of the test rows are not finite; lower --lr")
    return result


@torch.inference_mode()
def _feature_dim(inputs: Inputs, encoder: nn.Module | None, device: torch.device) -> int:
    sample = inputs.batch(torch.zeros(1, dtype=torch.int64, device=device))
    if encoder is not None:
        sample = encoder.eval()(sample)
    if sample.ndim != 2:
        raise ConfigError(f"the learner needs features [rows, dimensions], not of shape {list(sample.shape)}")
    return int(sample.shape[1])


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _key(stream: TaskStream, strategy: str, config: ContinualConfig, seed: int, encoder: nn.Module | None) -> str:
    """Names everything that decides the result."""
    document = [stream.dataset.checksum, stream.checksum, strategy, config.as_dict(), seed]
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name, value in encoder.state_dict().items() if encoder is not None else ():
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
