"""The epoch driver: history, progress and divergence checks for every training loop, and everything that it needs to
resume bit-identically: checkpoints, and random numbers that depend on a stage.

Checkpoints are safetensors, never pickle.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from classnorm.errors import ConfigError, DataError, DivergedError, ModelError
from classnorm.io.documents import parse_json
from classnorm.io.files import replacing
from classnorm.progress import report
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


_REMEDY = "delete it to start over"


def save_tensors(path: Path, key: str, tensors: Mapping[str, Tensor], documents: Mapping[str, Any]) -> None:
    """Write tensors and JSON documents with a checksum, which safetensors lack. `key` identifies the run."""
    texts = {"key": key, **{name: json.dumps(document) for name, document in documents.items()}}
    texts["sha256"] = _checksum(tensors, texts)
    with replacing(path) as temporary:
        temporary.write_bytes(save({name: value.cpu().contiguous() for name, value in tensors.items()}, texts))


def load_tensors(path: Path, key: str, shapes: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and documents that `save_tensors` wrote; `shapes` has the type of each document."""
    try:
        with safe_open(path, framework="pt") as file:
            texts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if texts.pop("sha256", None) != _checksum(tensors, texts):
            raise ValueError("not as it was written")
        documents = {name: parse_json(texts[name], shape, str(path), _REMEDY) for name, shape in shapes.items()}
    except (OSError, SafetensorError, KeyError, ValueError, DataError) as error:
        raise ModelError(f"{path}: not a readable checkpoint; {_REMEDY}") from error
    if texts.get("key") != key:
        raise ConfigError(
            f"{path}: belongs to a run with other data, settings or seed; "
            "repeat its settings, choose another `out`, or leave out `resume`"
        )
    return tensors, documents


def _checksum(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    """SHA-256 of tensors and texts with their names: a flipped bit would change weights."""
    digest = hashlib.sha256(json.dumps(dict(texts), sort_keys=True).encode())
    for name in sorted(tensors):
        content = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(f"|{name}|{tensors[name].dtype}|{tuple(tensors[name].shape)}|".encode())
        digest.update(content.numpy().data)
    return digest.hexdigest()


def add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with `prefix`, named without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, key: str, history: History) -> None:
    """Write weights, running statistics, optimizer state and history; `key` identifies the training run."""
    tensors = add_prefix("model.", model.state_dict())
    for index, state in optimizer.state_dict()["state"].items():
        values = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        tensors |= add_prefix(f"optimizer.{index}.", values)
    save_tensors(path, key, tensors, {"history": history})


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, key: str) -> History:
    """Restore a checkpoint and return its history, one record per finished epoch."""
    tensors, documents = load_tensors(path, key, {"history": list[dict[str, float]]})
    model.load_state_dict(strip_prefix("model.", tensors))
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in strip_prefix("optimizer.", tensors).items():
        index, entry = name.split(".", 1)
        state.setdefault(int(index), {})[entry] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    history: History = documents["history"]
    return history


def seeded(seed: int, *stage: int, generator: torch.Generator | None = None) -> torch.Generator:
    """A CPU generator for a stage of a run, like an epoch or (task, epoch); reseeds `generator` if given."""
    for number in stage:
        seed = seed * 1_000_003 + number
    return (generator or torch.Generator()).manual_seed(seed % 2**63)
