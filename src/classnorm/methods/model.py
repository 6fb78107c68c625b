"""The model that a method fits, and the data it may use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.data.row_store import RowStore
from classnorm.errors import ConfigError
from classnorm.training import StoredRows


@dataclass(frozen=True)
class ExampleSpace:
    """The space in which prototypes are points among the rows, so that pictures of a class can correct its own."""

    place: Callable[[Tensor], Tensor]
    """Rows [n, d_z] → [n, k]."""
    center: Callable[[Tensor], Tensor] = lambda prototypes: prototypes
    """Prototypes [n_classes, d] → [n_classes, k], their places among the rows."""
    prototype: Callable[[Tensor], Tensor] = lambda centers: centers
    """The inverse of `center`: [n_classes, k] → [n_classes, d]."""
    directions: bool = True
    """Whether only the direction of a center is compared with rows; if not, its distance."""
    variance: Callable[[Tensor], Tensor] | None = None
    """Descriptors [n_classes, d_a] → [n_classes], how uncertain the described prototypes are, in any unit; None if all
    are alike."""


class ZeroShotModel(nn.Module, ABC):
    """Scores classes by their descriptors in two steps, so that prototypes are computed once."""

    @abstractmethod
    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d], the method's representation of each class."""

    @abstractmethod
    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """[n, d_z], [n_classes, d] → [n, n_classes]."""

    def choices(self) -> dict[str, Any]:
        """What the fit has chosen by itself, for the record: setting → value."""
        return {}

    def class_weights(self, descriptors: Tensor, seen: Tensor) -> Tensor | None:
        """How much the prototype of a class takes from each training class, [n, d_a], [n_seen, d_a] → [n, n_seen];
        None if the method has no such weights."""
        return None

    def example_space(self) -> ExampleSpace | None:
        """Where rows average into prototypes; None if prototypes are something else, like classifiers."""
        return None


class ProductModel(ZeroShotModel):
    """A model whose logits are products of a vector per row and a vector per class, which scorers compute only once."""

    @abstractmethod
    def row_vectors(self, features: Tensor) -> Tensor:
        """[n, d_z] → [n, k]."""

    @abstractmethod
    def class_vectors(self, prototypes: Tensor) -> Tensor:
        """[n_classes, d] → [n_classes, k]."""

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return self.row_vectors(features) @ self.class_vectors(prototypes).T


@dataclass(frozen=True)
class TrainingRows:
    """The training rows as tensors, the only data a fit may use."""

    features: Tensor
    """[n, d_z], float32"""
    labels: Tensor
    """[n], indices into the seen classes"""
    descriptors: Tensor
    """[n_seen, d_a] of the seen classes"""

    @classmethod
    def of(cls, dataset: ZeroShotDataset, device: torch.device) -> Self:
        labels, descriptors = _seen_classes(dataset, device)
        features = torch.from_numpy(dataset.loaded(dataset.split.train))
        return cls(features.to(device), labels, descriptors)


@dataclass(frozen=True)
class RowSource:
    """Like `TrainingRows`, but rows of a store stay there: for methods that do not need them all at once."""

    features: Tensor | StoredRows
    labels: Tensor
    descriptors: Tensor

    @classmethod
    def of(cls, dataset: ZeroShotDataset, device: torch.device) -> Self:
        labels, descriptors = _seen_classes(dataset, device)
        if isinstance(dataset.features, RowStore):
            return cls(StoredRows(dataset.features, dataset.split.train, device), labels, descriptors)
        features = torch.from_numpy(dataset.loaded(dataset.split.train))
        return cls(features.to(device), labels, descriptors)


def _seen_classes(dataset: ZeroShotDataset, device: torch.device) -> tuple[Tensor, Tensor]:
    """Labels [n] of the training rows as indices into the seen classes, and the descriptors of these."""
    seen = np.flatnonzero(dataset.seen)
    if len(seen) < 2:
        raise ConfigError(f"{dataset.name}: training needs at least 2 seen classes, there is {len(seen)}")
    labels = torch.from_numpy(np.searchsorted(seen, dataset.labels[dataset.split.train]))
    return labels.to(device), torch.from_numpy(dataset.descriptors[seen]).to(device)
