"""Methods whose prototypes come from an attribute embedder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from classnorm.methods.method import TrainedMethodConfig
from classnorm.methods.model import ZeroShotModel
from classnorm.methods.settings.shared import DescriptorConfig
from classnorm.nn import AttributeEmbedder
from classnorm.settings import Width


@dataclass(frozen=True, kw_only=True)
class EmbedderConfig(TrainedMethodConfig, DescriptorConfig):
    """Settings of a trained embedder."""

    hidden: Width = 1200
    """Width of the embedder's hidden layers."""


class EmbedderModel(ZeroShotModel):
    """An attribute embedder; subclasses define the logits.

    Args:
        descriptors: [n_seen, d_a] of the seen classes; None for a model to load weights into.
        class_norm: class standardization before the last layer, and proper variance for that layer.
    """

    def __init__(
        self,
        config: EmbedderConfig,
        d_a: int,
        d_z: int,
        seed: int = 0,
        descriptors: Tensor | None = None,
        *,
        layers: int = 2,
        final_relu: bool = True,
        class_norm: bool = False,
    ) -> None:
        super().__init__()
        self.embedder = AttributeEmbedder(
            d_a,
            d_z,
            layers=layers,
            hidden=config.hidden,
            attribute_normalization=config.attribute_normalization,
            normalization="class" if class_norm else "none",
            final_relu=final_relu,
            init="proper" if class_norm else "torch",
            seed=seed,
            descriptors=torch.zeros(2, d_a) if descriptors is None else descriptors.cpu(),
        )

    def prototypes(self, descriptors: Tensor) -> Tensor:
        prototypes: Tensor = self.embedder(descriptors)
        return prototypes
