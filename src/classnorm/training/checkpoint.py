"""Everything a training run needs to resume bit-identically: checkpoints, and random numbers that depend on a stage.

Checkpoints are safetensors, never pickle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from classnorm.errors import ConfigError, DataError, ModelError
from classnorm.io.documents import parse_json
from classnorm.io.files import replacing
from classnorm.training.context import History

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
