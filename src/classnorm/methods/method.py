"""What a method is: a typed config, a model that can be rebuilt from it, and a `fit`."""

from __future__ import annotations

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from classnorm.data import SplitKind, ZeroShotDataset
from classnorm.errors import ConfigError, unknown_name
from classnorm.files import digest
from classnorm.metrics import Calibration
from classnorm.training import Checkpoints, History, Progress

__all__ = [
    "VALIDATED",
    "FitContext",
    "Fitted",
    "Method",
    "MethodConfig",
    "TrainingRows",
    "ZeroShotModel",
    "checkpoints",
    "fit_key",
]


VALIDATED: dict[str, Literal["any", "scale", "bias", "grid"]] = {
    "validation": "any",
    "validation:scale": "scale",
    "validation:bias": "bias",
    "validation:grid": "grid",
}
"""Calibrations that validation chooses, and what it chooses from."""


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """What every method has: how its seen scores are calibrated, and on what."""

    calibration: str = "validation"
    """validation (scale or bias, whichever is better), validation:scale, validation:bias, validation:grid (the paper's
    five scales), none, scale:S (seen scores times S), or bias:B (seen scores minus B)."""
    validation: SplitKind = "matched"
    """Validation splits: `matched` holds out the dataset's own share of classes, `paper` 10 % of them."""
    validation_splits: int = 2
    """Validation splits to average over; each costs one more training."""

    def check(self) -> None:
        """Raise a `ConfigError` for a value that cannot work."""
        if self.calibration not in VALIDATED:
            Calibration.parse(self.calibration)
        elif self.validation_splits < 1:
            raise ConfigError("validation_splits must be at least 1 for a calibration by validation")

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, each checked for its name and type."""
        hints = typing.get_type_hints(type(self))
        for name, value in changes.items():
            if name not in hints:
                raise unknown_name("setting", name, hints)
            changes[name] = _as_type(name, value, hints[name])
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _as_type(name: str, value: Any, hint: Any) -> Any:
    """`value` if it fits the annotation; whole numbers pass for floats."""
    options = typing.get_args(hint) if typing.get_origin(hint) is not None else (hint,)
    if typing.get_origin(hint) is typing.Literal:
        if value in options:
            return value
        raise unknown_name(f"value of {name}", str(value), map(str, options))
    for option in options:
        if typing.get_origin(option) is typing.Literal:
            if value in typing.get_args(option):
                return value
        elif option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        elif isinstance(value, option) and not (isinstance(value, bool) and option is not bool):
            return value
    expected = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{name} cannot be {value!r}; it must be of type {expected}")


class ZeroShotModel(nn.Module, ABC):
    """Scores classes by their descriptors, in two steps, so that prototypes are computed once."""

    @abstractmethod
    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d], whatever the method keeps of a class."""

    @abstractmethod
    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """[n, d_z], [n_classes, d] → [n, n_classes]."""


@dataclass(frozen=True)
class FitContext:
    """Where and how a fit runs; nothing in it changes the result."""

    device: torch.device
    progress: Progress | None = None
    checkpoint: Path | None = None
    """File for the state of the training."""
    checkpoint_every: int = 0
    resume: bool = False


@dataclass(frozen=True)
class Fitted:
    """A trained model and how its training went."""

    model: ZeroShotModel
    history: History


@dataclass(frozen=True)
class TrainingRows:
    """The training rows as tensors: what a fit may look at."""

    features: Tensor
    """[n, d_z], float32"""
    labels: Tensor
    """[n], positions among the seen classes"""
    descriptors: Tensor
    """[n_seen, d_a] of the seen classes"""

    @classmethod
    def of(cls, dataset: ZeroShotDataset, device: torch.device) -> Self:
        seen, rows = np.flatnonzero(dataset.seen), dataset.split.train
        if len(seen) < 2:
            raise ConfigError(f"{dataset.name}: training needs at least 2 seen classes, there is {len(seen)}")
        features = torch.from_numpy(np.asarray(dataset.features[rows], dtype=np.float32))
        labels = torch.from_numpy(np.searchsorted(seen, dataset.labels[rows]))
        return cls(features.to(device), labels.to(device), torch.from_numpy(dataset.descriptors[seen]).to(device))


class Fit(Protocol):
    def __call__(self, dataset: ZeroShotDataset, config: Any, seed: int, context: FitContext) -> Fitted: ...


@dataclass(frozen=True)
class Method:
    """An entry of the registry."""

    config: type[MethodConfig]
    recipes: Mapping[str, Callable[[ZeroShotDataset], MethodConfig]]
    """Presets by name; some depend on which benchmark the dataset is."""
    build: Callable[[Any, int, int, Mapping[str, Tensor]], ZeroShotModel]
    """(config, d_a, d_z, weights) → a model into which the saved weights can be loaded; they tell sizes that the config
    does not, like the number of seen classes."""
    fit: Fit


def checkpoints(
    dataset: ZeroShotDataset, method: str, config: MethodConfig, seed: int, context: FitContext
) -> Checkpoints | None:
    """Where the training loop keeps its state, if the context asks for it."""
    if context.checkpoint is None:
        return None
    key = fit_key(dataset, method, config, seed)
    return Checkpoints(context.checkpoint, key, context.checkpoint_every, context.resume)


def fit_key(dataset: ZeroShotDataset, method: str, config: MethodConfig, seed: int) -> str:
    """Names everything that decides the weights of a fit (a calibration does not)."""
    settings = {
        k: v for k, v in config.as_dict().items() if k not in ("calibration", "validation", "validation_splits")
    }
    document = [dataset.checksum, method, settings, seed]
    return digest(document)
