"""DEM: descriptors embedded in feature space by least squares; the nearest prototype wins.

Zhang, Xiang, Gong: Learning a Deep Embedding Model for Zero-Shot Learning, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import ExampleSpace, Fitted, TrainingRows
from classnorm.methods.parts.distance import negative_distances
from classnorm.methods.parts.embedding import EmbedderModel
from classnorm.methods.settings.dem import METHOD, DEMConfig
from classnorm.training import FitContext, train

__all__ = ["METHOD", "DEMConfig", "DEMModel"]


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
    config.check()
    rows = TrainingRows.of(dataset, context.device)
    model = DEMModel(config, dataset.d_a, dataset.d_z, seed, rows.descriptors).to(context.device)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        # Mean squared distance to the prototype of the class, per dimension, as in the authors' code.
        return F.mse_loss(model.prototypes(rows.descriptors).index_select(0, labels), features)

    return Fitted(model, train(model, loss, rows.features, rows.labels, config, seed=seed, context=context))
