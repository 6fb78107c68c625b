r"""The bilinear compatibility :math:`F(x, a) = \theta(x)^\top W \varphi(a)` of DeViSE, ALE and SJE.

The three differ in their ranking loss and their defaults alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import Fitted, Method, MethodConfig, TrainingRows, ZeroShotModel
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeNormalization, AttributeNormalizationKind, initialize_
from classnorm.training import FitContext, TrainingConfig, train

__all__ = ["BilinearModel", "FeatureNormalization", "RankingConfig", "build", "hinges", "ranking_method"]

RankingLoss = Callable[[Tensor, Tensor, float], Tensor]
"""(scores [b, n_classes], labels [b], margin) → scalar"""


@dataclass(frozen=True, kw_only=True)
class RankingConfig(MethodConfig, TrainingConfig):
    """What the three methods share."""

    margin: float = 1.0
    """By how much the right class must win before a row stops counting."""
    feature_normalization: Literal["unit", "standardize", "none"] = "unit"
    """Features: `unit` norm, `standardize` (zero mean and unit variance over the training rows), or `none`."""
    attribute_normalization: AttributeNormalizationKind = "unit"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""

    epochs: int = 50
    """Passes over the training rows; the model of the last one is the result."""
    batch_size: int = 128
    """Rows per step."""
    lr: float = 1e-3
    """Learning rate."""

    def check(self) -> None:
        MethodConfig.check(self)
        TrainingConfig.check(self)
        if not (math.isfinite(self.margin) and self.margin > 0):
            raise ConfigError(f"margin is {self.margin}; it must be positive")


class FeatureNormalization(nn.Module):
    """[n, d_z] → [n, d_z]. A dimension that is constant over the training rows standardizes to zero."""

    mean: Tensor
    factor: Tensor

    def __init__(self, d_z: int, kind: Literal["unit", "standardize", "none"]) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("mean", torch.zeros(d_z))
        self.register_buffer("factor", torch.ones(d_z))

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Take the statistics of ``standardize`` from the training rows."""
        mean, std = features.mean(dim=0), features.std(dim=0, correction=0)
        self.mean.copy_(mean)
        self.factor.copy_(torch.where(std > 1e-6 * (1 + mean.abs()), std.reciprocal(), 0.0))

    def forward(self, features: Tensor) -> Tensor:
        if self.kind == "unit":
            return F.normalize(features, dim=1)
        return (features - self.mean) * self.factor if self.kind == "standardize" else features


class BilinearModel(ZeroShotModel):
    """The prototype of a class is W·φ(a), the weights of its linear classifier."""

    def __init__(self, config: RankingConfig, d_a: int, d_z: int, seed: int = 0) -> None:
        super().__init__()
        self.of_feature = FeatureNormalization(d_z, config.feature_normalization)
        self.of_descriptor = AttributeNormalization(d_a, config.attribute_normalization)
        self.compatibility = nn.Linear(d_a, d_z, bias=False)  # W
        initialize_(self.compatibility, "proper", generator=torch.Generator().manual_seed(seed))

    def prototypes(self, descriptors: Tensor) -> Tensor:
        result: Tensor = self.compatibility(self.of_descriptor(descriptors))
        return result

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        result: Tensor = self.of_feature(features) @ prototypes.T
        return result


def hinges(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    r"""By how much each wrong class violates the margin: :math:`[\Delta + F(x, a_c) - F(x, a_y)]_+`.

    Shapes: [b, n_classes], [b] → [b, n_classes], with 0 for the right class.

    >>> hinges(torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([0]), margin=1.0)
    tensor([[0.0000, 0.5000, 0.0000]])
    """
    right = labels[:, None]
    violation = (margin + scores - scores.gather(1, right)).relu()
    return violation.scatter(1, right, 0.0)


def build(config: RankingConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> BilinearModel:
    """A model to load weights into."""
    return BilinearModel(config, d_a, d_z)


def ranking_method(config: type[RankingConfig], ranking_loss: RankingLoss, paper: RankingConfig) -> Method:
    """The method that trains a bilinear compatibility by a ranking loss over all seen classes.

    Its recipe `reference` is a short schedule, not tuned: the defaults of `config`.

    Args:
        paper: the recipe with the settings of the publication.
    """

    def fit(dataset: ZeroShotDataset, config: RankingConfig, seed: int, context: FitContext) -> Fitted:
        config.check()
        rows = TrainingRows.of(dataset, context.device)
        model = BilinearModel(config, dataset.d_a, dataset.d_z, seed).to(context.device)
        model.of_feature.fit(rows.features)
        model.of_descriptor.fit(rows.descriptors)
        # Both sides are normalised once, instead of in every batch.
        descriptors = model.of_descriptor(rows.descriptors)

        def loss(features: Tensor, labels: Tensor) -> Tensor:
            return ranking_loss(features @ model.compatibility(descriptors).T, labels, config.margin)

        features = model.of_feature(rows.features)
        hint = 'lower `lr` or use `feature_normalization="unit"`'
        return Fitted(model, train(model, loss, features, rows.labels, config, seed=seed, context=context, hint=hint))

    recipes = {"paper": lambda dataset: paper, "reference": lambda dataset: config()}
    return Method(config=config, recipes=recipes, build=build, fit=fit, space=SPACE, grid=GRID)


SPACE: Space = {
    "lr": Range(3e-4, 1e-2, log=True),
    "margin": Range(0.1, 3.0, log=True),
    "epochs": Range(10, 100, log=True, whole=True),
    "weight_decay": Range(1e-6, 1e-3, log=True),
}
GRID: Space = {
    "lr": Choice((1e-3, 3e-3)),
    "margin": Choice((0.3, 1.0)),
    "epochs": Choice((25, 50)),
}
