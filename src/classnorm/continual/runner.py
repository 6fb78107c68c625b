"""Runs a strategy through a stream and records the logits of the whole test set after each task."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from classnorm.continual.config import StreamConfig
from classnorm.continual.learner import CountedInputs, FeatureInputs, Inputs, Learner
from classnorm.continual.strategies import Strategy, StreamProblem, configure, strategy_named
from classnorm.continual.stream import TaskStream
from classnorm.errors import ConfigError, DataError, DivergedError, ModelError
from classnorm.io.arrays import read_npy, write_npy
from classnorm.io.documents import Count
from classnorm.io.files import replacing
from classnorm.progress import Progress, reported_as
from classnorm.results.run_folder import STATE, versioned
from classnorm.training.epochs import add_prefix, load_tensors, save_tensors, strip_prefix

_BATCH = 128  # rows scored at once, which bounds the memory that an encoder of images needs
_FEATURE_BATCH = 1024  # the same where the inputs are features
_LOGITS = "logits-{:02d}.npy"
_SAVED = {"losses": list[list[float]], "seconds": float, "rows": Count, "logits": list[str]}


@dataclass(frozen=True, eq=False)
class StreamResult:
    """A finished run. `continual_scores(result.history, stream.test_labels, stream.tasks)` scores it."""

    history: list[npt.NDArray[np.float32]]
    """[n_test, n_classes] before the first task and after each."""
    losses: list[list[float]]
    """Mean loss of each epoch, task by task."""
    train_seconds: float
    """Training time, without the recording of logits."""
    learner: Learner
    """The learner after the last task."""
    stored_bytes: int
    """What the strategy keeps after the last task besides the learner."""
    rows: int
    """Rows that passed through the learner in training, each as often as it did."""


def run_stream(
    stream: TaskStream,
    strategy: str,
    config: StreamConfig | None = None,
    seed: int = 0,
    *,
    device: torch.device | None = None,
    folder: Path | None = None,
    resume: bool = False,
    encoder: nn.Module | None = None,
    inputs: Inputs | None = None,
) -> StreamResult:
    """Learn the tasks of a stream one after another.

    Args:
        config: an instance of the strategy's `Config`; None is `configure(stream, strategy)`.
        seed: determines the initial weights and the order of rows.
        device: None is the CPU.
        folder: stores the state after each task and the logits of each step.
        resume: continue the run in `folder`, with the same result as without the interruption.
        encoder: a copy of it is fine-tuned, if it has parameters that require a gradient.
        inputs: input of the encoder, or of the learner itself, for each row of the dataset; None is its features.

    >>> from classnorm.data import synthetic, SyntheticConfig
    >>> stream = TaskStream.make(synthetic(SyntheticConfig(classes=6, unseen=2, rows=60, features=8)), tasks=3)
    >>> [logits.shape for logits in run_stream(stream, "sequential").history]
    [(30, 6), (30, 6), (30, 6), (30, 6)]
    """
    kind, dataset = strategy_named(strategy), stream.dataset
    config = configure(stream, strategy) if config is None else config
    if not isinstance(config, kind.Config):
        raise ConfigError(
            f"strategy {strategy} needs a config of type {kind.Config.__name__}, not {type(config).__name__}"
        )
    device = device or torch.device("cpu")
    inputs = FeatureInputs.of(dataset, device) if inputs is None else inputs
    if len(inputs) != dataset.n_rows:
        raise ConfigError(f"there are {len(inputs)} inputs for {dataset.n_rows} rows of {dataset.name}")
    encoder = copy.deepcopy(encoder).to(device) if encoder is not None else None
    key = _key(stream, strategy, config, seed, encoder) if folder else ""
    learner = kind.new_learner(config, dataset.d_a, _feature_dim(inputs, encoder, device), seed, encoder).to(device)
    counted = CountedInputs(inputs)
    run = _Run(stream, kind(StreamProblem.of(stream, learner, counted, seed, device), config), inputs, folder, key)
    if not (resume and run.restore()):
        run.save()
    record = run.record
    for task in range(len(record.losses), stream.n_tasks):
        run.meet(task)
        started, before = time.perf_counter(), counted.count
        with reported_as(partial(_of_stream, task, stream.n_tasks)):
            record.losses.append(run.strategy.learn(task))
        record.seconds += time.perf_counter() - started
        record.rows += counted.count - before
        run.save()
    stored = run.strategy.stored_bytes(stream.n_tasks)
    return StreamResult(record.history, record.losses, record.seconds, learner.eval(), stored, record.rows)


@dataclass
class Record:
    """Progress of a run. In its folder, an interrupted one continues from it to bit-identical logits."""

    history: list[npt.NDArray[np.float32]] = field(default_factory=list)
    """[n_test, n_classes] before the first task and after each."""
    losses: list[list[float]] = field(default_factory=list)
    """Mean loss of each epoch, task by task."""
    seconds: float = 0.0
    """Training time."""
    rows: int = 0
    """Rows that passed through the learner in training, each as often as it did."""


@dataclass
class _Run:
    """A strategy between two tasks of a stream."""

    stream: TaskStream
    strategy: Strategy
    inputs: Inputs
    """For recording, which does not count."""
    folder: Path | None
    key: str
    record: Record = field(default_factory=Record)

    def meet(self, task: int) -> None:
        """Let the strategy know the attributes that are known in a task."""
        problem = self.strategy.problem
        self.strategy.problem = problem.with_descriptors(self.stream.known_descriptors(task))

    def save(self) -> None:
        """Record the current logits and, in a folder, the state."""
        learner = self.strategy.problem.learner
        logits = self._logits()
        logits[:, self.stream.seen(len(self.record.losses))] -= np.float32(learner.scale * self.strategy.config.bias)
        self.record.history.append(logits)
        if self.folder:
            self._write(self.folder, logits)

    def _write(self, folder: Path, logits: npt.NDArray[np.float32]) -> None:
        """Write the newest logits, then the state that makes them count."""
        record, step = self.record, len(self.record.history) - 1
        with replacing(folder / _LOGITS.format(step)) as temporary:
            if step == 0:  # the state of another run must not outlive its logits
                (folder / STATE).unlink(missing_ok=True)
            write_npy(temporary, logits)
        learner, strategy = self.strategy.problem.learner, self.strategy
        tensors = add_prefix("model.", learner.state_dict()) | add_prefix("strategy.", strategy.state())
        documents = {name: getattr(record, name) for name in ("losses", "seconds", "rows")}
        documents["logits"] = [_checksum(logits) for logits in record.history]
        save_tensors(folder / STATE, self.key, tensors, documents)

    def restore(self) -> bool:
        """Load the state of the folder; False if it has none."""
        if self.folder is None or not (self.folder / STATE).exists():
            return False
        tensors, saved = load_tensors(self.folder / STATE, self.key, _SAVED)
        checksums = saved.pop("logits")
        try:
            history = [np.array(read_npy(self.folder / _LOGITS.format(step))) for step in range(len(checksums))]
            if checksums != [_checksum(logits) for logits in history]:
                raise DataError("the logits are not as they were written")
        except DataError as error:
            raise ModelError(f"{self.folder}: not a readable checkpoint; delete it to start over") from error
        self.record = Record(history, **saved)
        device = self.strategy.problem.descriptors.device
        # Sums in float64 stay on the CPU, where they are used; MPS has none.
        tensors = {name: t if t.dtype == torch.float64 else t.to(device) for name, t in tensors.items()}
        self.strategy.problem.learner.restore(strip_prefix("model.", tensors))
        self.strategy.load_state(strip_prefix("strategy.", tensors))
        return True

    @torch.inference_mode()
    def _logits(self) -> npt.NDArray[np.float32]:
        """[n_test, n_classes]; classes not seen yet are embedded like the others, with the running statistics."""
        problem = self.strategy.problem
        learner, device = problem.learner.eval(), problem.descriptors.device
        known = self.stream.known_descriptors(max(len(self.record.losses) - 1, 0))  # in the last task
        prototypes = learner.prototypes(torch.from_numpy(known).to(device))
        size = _FEATURE_BATCH if isinstance(learner.encoder, nn.Identity) else _BATCH
        batches = torch.split(torch.from_numpy(self.stream.test_rows).to(device), size)
        scores = [learner.logits(self.inputs.batch(rows), prototypes).float().cpu() for rows in batches]
        logits: npt.NDArray[np.float32] = torch.cat(scores).numpy()
        if not np.isfinite(logits).all():
            raise DivergedError("training diverged: the scores of the test rows are not finite; lower `lr`")
        return logits


def _of_stream(task: int, n_tasks: int, step: Progress) -> Progress:
    """The progress of a task as progress of the stream."""
    note = f"task {task + 1}/{n_tasks}, {step.note}"
    return Progress(task * step.total + step.done, n_tasks * step.total, note)


@torch.inference_mode()
def _feature_dim(inputs: Inputs, encoder: nn.Module | None, device: torch.device) -> int:
    sample = inputs.batch(torch.zeros(1, dtype=torch.int64, device=device))
    if encoder is not None:
        sample = encoder.eval()(sample)
    if sample.ndim != 2:
        raise ConfigError(f"the learner needs features [rows, dimensions], not of shape {list(sample.shape)}")
    return int(sample.shape[1])


def _key(stream: TaskStream, strategy: str, config: StreamConfig, seed: int, encoder: nn.Module | None) -> str:
    """Identifies everything that determines the result."""
    facts = [stream.dataset.checksum, stream.checksum, strategy, config.as_dict(), seed]
    key = hashlib.sha256(json.dumps(versioned(facts, f"strategy {strategy}"), sort_keys=True).encode())
    for name, value in encoder.state_dict().items() if encoder is not None else ():
        key.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return key.hexdigest()


def _checksum(logits: npt.NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(logits).data).hexdigest()
