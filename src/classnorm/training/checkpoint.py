"""Checkpoints: everything a training run needs to resume bit-identically. Safetensors, never pickle."""

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

from classnorm.errors import ConfigError, ModelError
from classnorm.io.files import replacing


def tensors_checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of tensors and texts with their names; safetensors files have none, and a flipped bit changes weights."""
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        content = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(f"|{name}|{tensors[name].dtype}|{tuple(tensors[name].shape)}|".encode())
        digest.update(content.numpy().data)
    return digest.hexdigest()


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, key: str, history: list[dict[str, float]]
) -> None:
    """Write weights, running statistics, optimizer state and history; `key` identifies the training run."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items() if isinstance(value, Tensor)}
    metadata = {"key": key, "history": json.dumps(history)}
    metadata["sha256"] = tensors_checksum(tensors, metadata)
    with replacing(path) as temporary:
        temporary.write_bytes(save({name: value.contiguous() for name, value in tensors.items()}, metadata))


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, key: str) -> list[dict[str, float]]:
    """Restore a checkpoint and return its history, one record per finished epoch."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        history: list[dict[str, float]] = json.loads(metadata["history"])
        if metadata.pop("sha256", None) not in (None, tensors_checksum(tensors, metadata)):  # none in old files
            raise ValueError("not as it was written")
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not a readable checkpoint; delete it to start over") from error
    if metadata.get("key") != key:
        raise ConfigError(
            f"{path}: belongs to a training run with another recipe, seed or dataset; "
            "repeat its settings, choose another `out`, or leave out `resume`"
        )
    # From here on the file is what `save_checkpoint` wrote.
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, entry = name.split(".", 2)
            state.setdefault(int(index), {})[entry] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return history
