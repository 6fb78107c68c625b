"""The model that a method fits, and the data it may use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError

__all__ = ["TrainingRows", "ZeroShotModel"]


class ZeroShotModel(nn.Module, ABC):
    """Scores classes by their descriptors in two steps, so that prototypes are computed once."""

    @abstractmethod
    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d], the method's representation of each class."""

    @abstractmethod
    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """[n, d_z], [n_classes, d] → [n, n_classes]."""


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
        seen, rows = np.flatnonzero(dataset.seen), dataset.split.train
        if len(seen) < 2:
            raise ConfigError(f"{dataset.name}: training needs at least 2 seen classes, there is {len(seen)}")
        features = torch.from_numpy(np.asarray(dataset.features[rows], dtype=np.float32))
        labels = torch.from_numpy(np.searchsorted(seen, dataset.labels[rows]))
        return cls(features.to(device), labels.to(device), torch.from_numpy(dataset.descriptors[seen]).to(device))
