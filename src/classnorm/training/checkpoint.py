"""Checkpoints: everything a training run needs to resume bit-identically. Safetensors, never pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from classnorm.errors import ConfigError, ModelError
from classnorm.files import replacing

__all__ = ["load_checkpoint", "save_checkpoint"]


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, key: str, history: list[dict[str, float]]
) -> None:
    """Write weights, running statistics, optimizer state and history; `key` identifies the training run."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items() if isinstance(value, Tensor)}
    metadata = {"key": key, "history": json.dumps(history)}
    with replacing(path) as temporary:
        temporary.write_bytes(save({name: value.contiguous() for name, value in tensors.items()}, metadata))


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, key: str) -> list[dict[str, float]]:
    """Restore a checkpoint and return its history, one record per finished epoch."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        history: list[dict[str, float]] = json.loads(metadata["history"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: not a readable checkpoint; delete it to start over") from error
    if metadata.get("key") != key:
        raise ConfigError(
            f"{path}: belongs to a training run with another recipe, seed or dataset; "
            "repeat its settings, choose another `out`, or leave out `resume`"
        )
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, entry = name.split(".", 2)
            state.setdefault(int(index), {})[entry] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return history
