"""`Learner`: an encoder, an attribute embedder and scaled cosine logits; and its inputs: features, or what an encoder
maps to features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from classnorm.continual.config import ContinualConfig
from classnorm.data import ZeroShotDataset
from classnorm.nn import AttributeEmbedder, cosine_logits


class Learner(nn.Module):
    """The model that a strategy trains: descriptors → prototypes, inputs → features, and logits γ²·cos of the two.

    `scale` is the factor between a cosine and its logit.

    Args:
        d_a: descriptor dimension.
        d_z: feature dimension.
        encoder: maps inputs to features [b, d_z]; None if the inputs are features.
    """

    def __init__(self, config: ContinualConfig, d_a: int, d_z: int, seed: int, encoder: nn.Module | None = None):
        super().__init__()
        self.encoder = nn.Identity() if encoder is None else encoder
        self.trains_batch_norm = config.batch_norm == "trained"
        self.gamma = config.gamma
        self.scale = config.gamma**2
        self.embedder = AttributeEmbedder(
            d_a,
            d_z,
            layers=2,
            hidden=config.hidden,
            normalization="class" if config.class_norm else "none",
            final_relu=config.final_relu,
            init="proper" if config.class_norm else "kaiming_fan_in",
            hidden_init="kaiming_fan_in",
            init_distribution=config.init_distribution,
            seed=seed,
        )

    def prototypes(self, descriptors: Tensor, classes: Tensor | None = None) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_z], or the rows `classes` of it; the standardization is over all classes."""
        if classes is None:
            prototypes: Tensor = self.embedder(descriptors)
            return prototypes
        return self.embedder.prototypes_of(descriptors, classes)

    def forward(self, inputs: Tensor, descriptors: Tensor, classes: Tensor) -> Tensor:
        """Logits of some classes: [b, …], [n_classes, d_a], [k] → [b, k]."""
        return self.logits(inputs, self.prototypes(descriptors, classes))

    def logits(self, inputs: Tensor, prototypes: Tensor) -> Tensor:
        """[b, …], [n_classes, d_z] → [b, n_classes]."""
        return cosine_logits(self.encoder(inputs), prototypes, self.gamma)

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Load the `state_dict` from after some task."""
        self.load_state_dict(weights)

    def train(self, mode: bool = True) -> Self:
        """Unless it is trained, the encoder's batch normalization stays in evaluation mode: its statistics would drift
        from task to task."""
        super().train(mode)
        for module in self.encoder.modules():
            if isinstance(module, _BatchNorm) and not self.trains_batch_norm:
                module.eval()
        return self


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
