"""DEM: descriptors are embedded where the features are, by least squares; the nearest prototype wins.

Zhang, Xiang, Gong: Learning a Deep Embedding Model for Zero-Shot Learning, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import Fitted, Method, MethodConfig, TrainingRows, ZeroShotModel
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeEmbedder, AttributeNormalizationKind
from classnorm.training import FitContext, TrainingConfig, train

__all__ = ["METHOD", "DEMConfig", "DEMModel"]


@dataclass(frozen=True, kw_only=True)
class DEMConfig(MethodConfig, TrainingConfig):
    """The publication's embedding network. The defaults are the `reference` recipe."""

    epochs: int = 40
    """Passes over the training rows; the model of the last one is the result."""
    batch_size: int = 128
    """Rows per step."""
    lr: float = 1e-3
    """Learning rate."""
    weight_decay: float = 1e-4
    """L2 penalty of the weights; the strongest regulariser here."""
    layers: int = 2
    """Linear layers of the embedder; 1 is linear regression on the descriptors."""
    hidden: int = 1200
    """Width of the hidden layer."""
    attribute_normalization: AttributeNormalizationKind = "unit"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""
    final_relu: bool = True
    """ReLU on the prototypes: right for non-negative features, wrong for features of either sign (recipes look)."""

    def check(self) -> None:
        MethodConfig.check(self)
        TrainingConfig.check(self)
        for name in ("layers", "hidden"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")


class DEMModel(ZeroShotModel):
    """The embedder; a class scores by how near its prototype is."""

    def __init__(self, embedder: AttributeEmbedder) -> None:
        super().__init__()
        self.embedder = embedder

    def prototypes(self, descriptors: Tensor) -> Tensor:
        result: Tensor = self.embedder(descriptors)
        return result

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """−‖z − p‖², multiplied out so that no [n, n_classes, d_z] tensor arises."""
        squares = features.square().sum(dim=1, keepdim=True) + prototypes.square().sum(dim=1)
        return torch.addmm(squares.neg(), features, prototypes.T, alpha=2.0)


def _model(config: DEMConfig, d_a: int, d_z: int, seed: int, descriptors: Tensor) -> DEMModel:
    embedder = AttributeEmbedder(
        d_a,
        d_z,
        layers=config.layers,
        hidden=config.hidden,
        attribute_normalization=config.attribute_normalization,
        normalization="none",
        final_relu=config.final_relu,
        init="torch",
        seed=seed,
        descriptors=descriptors,
    )
    return DEMModel(embedder)


def build(config: DEMConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> DEMModel:
    """A model to load weights into."""
    return _model(config, d_a, d_z, 0, torch.zeros(2, d_a))


def fit(dataset: ZeroShotDataset, config: DEMConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    config.check()
    rows = TrainingRows.of(dataset, context.device)
    model = _model(config, dataset.d_a, dataset.d_z, seed, rows.descriptors.cpu()).to(context.device)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        # Mean squared distance of a feature to the prototype of its class, per dimension as the authors have it.
        return F.mse_loss(model.prototypes(rows.descriptors).index_select(0, labels), features)

    history = train(
        model,
        loss,
        rows.features,
        rows.labels,
        config,
        seed=seed,
        context=context,
    )
    return Fitted(model, history)


def paper(dataset: ZeroShotDataset) -> DEMConfig:
    """The authors' run on the GBU splits of CUB: a million steps."""
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
    """A short schedule, not tuned."""
    return DEMConfig(final_relu=dataset.nonnegative)


RECIPES: dict[str, Callable[[ZeroShotDataset], MethodConfig]] = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(2e-4, 5e-3, log=True),
    "weight_decay": Range(1e-6, 1e-3, log=True),
    "epochs": Range(10, 60, log=True, whole=True),
    "hidden": Choice((600, 1200, 2400)),
}
GRID: Space = {
    "lr": Choice((5e-4, 2e-3)),
    "weight_decay": Choice((1e-5, 1e-4)),
    "epochs": Choice((20, 40)),
}
METHOD = Method(config=DEMConfig, recipes=RECIPES, build=build, fit=fit, space=SPACE, grid=GRID)
