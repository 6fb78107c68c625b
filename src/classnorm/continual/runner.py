"""Runs a strategy through a stream and records what the scores need: the logits of the whole test set at each step."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from classnorm.continual.config import ContinualConfig, StreamConfig
from classnorm.continual.inputs import FeatureInputs, Inputs
from classnorm.continual.model import Learner
from classnorm.continual.record import Record, load_record, save_record
from classnorm.continual.strategies import STRATEGIES, MemoryConfig, Strategy, StreamProblem
from classnorm.continual.stream import TaskStream
from classnorm.errors import ConfigError, DivergedError, unknown_name
from classnorm.files import digest
from classnorm.progress import OnProgress, Progress

__all__ = ["StreamResult", "configure", "run_stream"]

_EVALUATED = 128  # rows scored together: memory stays bounded where an encoder sees images


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


def configure(stream: TaskStream, strategy: str, **changes: Any) -> StreamConfig:
    """The settings of a strategy for this stream, with some fields changed.

    No final ReLU where the features of the first task have either sign, and on SUN half the memory.
    """
    kind, dataset = _kind(strategy).Config, stream.dataset
    names = [field.name for field in fields(kind)]
    for name in changes:
        if name not in names:
            raise unknown_name("setting", name, names)
    config = kind()
    if isinstance(config, ContinualConfig):
        config = replace(config, final_relu=bool((dataset.features[stream.train(0)] >= 0).all()))
    if isinstance(config, MemoryConfig) and dataset.benchmark == "SUN":
        config = replace(config, memory_per_class=5)
    return replace(config, **changes)


def run_stream(
    stream: TaskStream,
    strategy: str,
    config: StreamConfig | None = None,
    seed: int = 0,
    device: torch.device | None = None,
    folder: Path | None = None,
    resume: bool = False,
    progress: OnProgress | None = None,
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
    learner = kind.new_learner(config, stream.dataset.d_a, _feature_dim(inputs, encoder, device), seed, encoder).to(
        device
    )
    learned = kind(StreamProblem.of(stream, learner, inputs, seed, device), config)

    def note(record: Record) -> None:
        """Record the logits of this moment and, in a folder, the state."""
        logits = _record_logits(stream, learner, inputs, device)
        seen = np.concatenate([stream.tasks[0][:0], *stream.tasks[: len(record.losses)]])
        logits[:, seen] -= np.float32(learner.scale * config.bias)
        record.history.append(logits)
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
        learner.restore(_below("model.", tensors))
        learned.load_state(_below("strategy.", tensors))
    for task in range(len(record.losses), stream.n_tasks):
        started = time.perf_counter()
        record.losses.append(learned.learn(task, _within(progress, task, stream.n_tasks)))
        record.seconds += time.perf_counter() - started
        note(record)
    return StreamResult(record.history, record.losses, record.seconds, learner.eval())


def _within(progress: OnProgress | None, task: int, n_tasks: int) -> OnProgress | None:
    """Reports the progress of a task as progress of the stream."""

    def report(step: Progress) -> None:
        assert progress is not None
        note = f"task {task + 1}/{n_tasks}, {step.note}"
        progress(Progress(task * step.total + step.done, n_tasks * step.total, note))

    return progress and report


def _kind(strategy: str) -> type[Strategy]:
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
    return STRATEGIES[strategy]


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
        raise DivergedError("training diverged: the scores of the test rows are not finite; lower `lr`")
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


def _key(stream: TaskStream, strategy: str, config: StreamConfig, seed: int, encoder: nn.Module | None) -> str:
    """Names everything that decides the result."""
    document = [stream.dataset.checksum, stream.checksum, strategy, config.as_dict(), seed]
    if encoder is None:
        return digest(document)
    weights = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name, value in encoder.state_dict().items():
        weights.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return weights.hexdigest()
