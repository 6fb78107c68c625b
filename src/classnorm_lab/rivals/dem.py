"""DEM: descriptors embedded in feature space by least squares; the nearest prototype wins.

Zhang, Xiang, Gong: Learning a Deep Embedding Model for Zero-Shot Learning, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted, Method
from classnorm.methods.model import ExampleSpace
from classnorm.methods.rows import TrainingRows
from classnorm.methods.space import Choice, Range
from classnorm.settings import Depth
from classnorm.training import FitContext, train
from classnorm_lab.rivals.parts.episodes import EmbedderConfig, EmbedderModel
from classnorm_lab.rivals.parts.layers import negative_distances


@dataclass(frozen=True, kw_only=True)
class DEMConfig(EmbedderConfig):
    """Settings of DEM. The defaults are the recipe `reference`."""

    epochs: int = 40
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-4
    """L2 penalty of the weights, the main regulariser here."""
    layers: Depth = 2
    """Linear layers of the embedder; 1 is linear regression on the descriptors."""
    final_relu: bool = True
    """ReLU on the prototypes, for non-negative features; recipes set it to match the data."""


class DEMModel(EmbedderModel):
    """The embedder, with negative squared distances as logits."""

    def __init__(self, config: DEMConfig, d_a: int, d_z: int, seed: int = 0, descriptors: Tensor | None = None) -> None:
        super().__init__(config, d_a, d_z, seed, descriptors, layers=config.layers, final_relu=config.final_relu)

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return negative_distances(features, prototypes)

    def example_space(self) -> ExampleSpace:
        return ExampleSpace(lambda features: features, directions=False)


def build(config: DEMConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> DEMModel:
    """A model to load weights into."""
    return DEMModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: DEMConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    rows = TrainingRows.of(dataset, context.device)
    model = DEMModel(config, dataset.d_a, dataset.d_z, seed, rows.descriptors).to(context.device)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        # Mean squared distance to the prototype of the class, per dimension, as in the authors' code.
        return F.mse_loss(model.prototypes(rows.descriptors).index_select(0, labels), features)

    return Fitted(model, train(model, loss, rows.features, rows.labels, config, seed=seed, context=context))


def paper(dataset: ZeroShotDataset) -> DEMConfig:
    """The authors' settings for the GBU splits of CUB: a million steps."""
    return DEMConfig(
        epochs=max(1, round(1_000_000 / -(-len(dataset.split.train) // 100))),
        batch_size=100,
        lr=1e-5,
        weight_decay=1e-2,
        schedule="constant",
        attribute_normalization="none",
        final_relu=dataset.nonnegative,
    )


def reference(dataset: ZeroShotDataset) -> DEMConfig:
    """A short, untuned schedule."""
    return DEMConfig(final_relu=dataset.nonnegative)


METHOD = Method(
    config=DEMConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(2e-4, 5e-3, log=True),
        "weight_decay": Range(1e-6, 1e-3, log=True),
        "epochs": Range(10, 60, log=True, whole=True),
        "hidden": Choice((600, 1200, 2400)),
    },
    grid={
        "lr": Choice((5e-4, 2e-3)),
        "weight_decay": Choice((1e-5, 1e-4)),
        "epochs": Choice((20, 40)),
    },
    parallel=True,
)
