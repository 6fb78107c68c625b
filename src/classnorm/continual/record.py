"""The state of a run on disk, from which an interrupted run continues to bit-identical logits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from classnorm.errors import ConfigError, DataError, ModelError
from classnorm.io.arrays import read_npy, write_npy
from classnorm.io.files import replacing
from classnorm.training.checkpoint import tensors_checksum


@dataclass
class Record:
    """Progress of a run."""

    history: list[npt.NDArray[np.float32]] = field(default_factory=list)
    """[n_test, n_classes] before the first task and after each."""
    losses: list[list[float]] = field(default_factory=list)
    """Mean loss of each epoch, task by task."""
    seconds: float = 0.0
    """Training time."""
    rows: int = 0
    """Rows that passed through the learner in training, each as often as it did."""


def add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with `prefix`, named without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def save_record(folder: Path, key: str, record: Record, tensors: Mapping[str, Tensor]) -> None:
    """Write the newest logits, then the state that makes them count. `key` identifies the run."""
    step = len(record.history) - 1
    with replacing(_logits(folder, step)) as temporary:
        if step == 0:  # the state of another run must not outlive its logits
            _state(folder).unlink(missing_ok=True)
        write_npy(temporary, record.history[step])
    metadata = {
        "key": key,
        "losses": json.dumps(record.losses),
        "seconds": str(record.seconds),
        "rows": str(record.rows),
    }
    metadata["logits"] = json.dumps([_checksum(logits) for logits in record.history])
    metadata["sha256"] = tensors_checksum(tensors, metadata)
    with replacing(_state(folder)) as temporary:
        temporary.write_bytes(save({name: value.cpu().contiguous() for name, value in tensors.items()}, metadata))


def load_record(folder: Path, key: str, device: torch.device) -> tuple[Record, dict[str, Tensor]] | None:
    """The last state that `save_record` wrote; None if there is none."""
    path = _state(folder)
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            if metadata.pop("sha256", None) not in (None, tensors_checksum(tensors, metadata)):  # none in old files
                raise ValueError("not as it was written")
            # Sums in float64 stay on the CPU, where they are used; MPS has none.
            tensors = {name: t if t.dtype == torch.float64 else t.to(device) for name, t in tensors.items()}
        losses = json.loads(metadata["losses"])
        history = [np.array(read_npy(_logits(folder, step))) for step in range(len(losses) + 1)]
        if "logits" in metadata and json.loads(metadata["logits"]) != [_checksum(logits) for logits in history]:
            raise ValueError("the logits are not as they were written")
        record = Record(history, losses, float(metadata["seconds"]), int(metadata.get("rows", 0)))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RecursionError, DataError) as error:
        raise ModelError(f"{folder}: not a readable run; delete it to start afresh") from error
    if metadata.get("key") != key:
        raise ConfigError(
            f"{folder}: holds a run with another stream, strategy, setting or seed; "
            "repeat its settings, choose another `out`, or leave out `resume`"
        )
    return record, tensors


def _checksum(logits: npt.NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(logits).data).hexdigest()


def _state(folder: Path) -> Path:
    return folder / "state.safetensors"


def _logits(folder: Path, step: int) -> Path:
    return folder / f"logits-{step:02d}.npy"
