"""Inputs of a learner: features, or what an encoder maps to features."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from classnorm.data import ZeroShotDataset


class Inputs(Protocol):
    """The input of every row of a dataset."""

    def __len__(self) -> int:
        """Number of rows of the dataset."""

    def batch(self, rows: Tensor) -> Tensor:
        """Inputs of some rows, on the learner's device: [b] → [b, …]. The same rows give the same inputs."""


@runtime_checkable
class AugmentedInputs(Inputs, Protocol):
    """Inputs that training may change at random, such as images."""

    def augmented(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """The same as `batch`, changed by the generator."""


class FeatureInputs:
    """All features of a dataset, on the learner's device."""

    def __init__(self, features: Tensor) -> None:
        self.features = features  # [n_rows, d_z]

    @classmethod
    def of(cls, dataset: ZeroShotDataset, device: torch.device) -> Self:
        features = np.asarray(dataset.features, dtype=np.float32)
        if not features.flags.writeable:  # like a mapped file, which PyTorch warns about
            features = features.copy()
        return cls(torch.from_numpy(features).to(device))

    def __len__(self) -> int:
        return len(self.features)

    def batch(self, rows: Tensor) -> Tensor:
        return self.features.index_select(0, rows)


class CountedInputs:
    """Counts the rows that a strategy asks for, in all its passes: what it computes, whatever the machine."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.count = 0

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, rows: Tensor) -> Tensor:
        self.count += len(rows)
        return self.inputs.batch(rows)

    def augmented(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Inputs of some rows, changed at random as training may; unchanged if they have no such changes."""
        if not isinstance(self.inputs, AugmentedInputs):
            return self.batch(rows)
        self.count += len(rows)
        return self.inputs.augmented(rows, generator)
