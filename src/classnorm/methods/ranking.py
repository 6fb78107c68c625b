r"""DeViSE, ALE and SJE: a bilinear compatibility :math:`F(x, a) = \theta(x)^\top W \varphi(a)`, three ranking losses.

- DeViSE sums the hinges of all wrong classes. Frome, Corrado, Shlens, Bengio, Dean, Ranzato, Mikolov: DeViSE: A Deep
  Visual-Semantic Embedding Model, NeurIPS 2013.
- ALE weighs them so that the top of the list matters most. Akata, Perronnin, Harchaoui, Schmid: Label-Embedding for
  Image Classification, TPAMI 2016 (first at CVPR 2013).
- SJE takes the worst violating class only. Akata, Reed, Walter, Lee, Schiele: Evaluation of Output Embeddings for
  Fine-Grained Image Classification, CVPR 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fit, Fitted
from classnorm.methods.model import ZeroShotModel
from classnorm.methods.rows import TrainingRows
from classnorm.methods.settings.ranking import RankingConfig
from classnorm.nn import AttributeNormalization, initialize_
from classnorm.training import FitContext, train

RankingLoss = Callable[[Tensor, Tensor, float], Tensor]
"""(scores [b, n_classes], labels [b], margin) → scalar"""


class FeatureNormalization(nn.Module):
    """[n, d_z] → [n, d_z]; dimensions that are constant over the training rows standardize to zero."""

    mean: Tensor
    factor: Tensor

    def __init__(self, d_z: int, kind: Literal["unit", "standardize", "none"]) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("mean", torch.zeros(d_z))
        self.register_buffer("factor", torch.ones(d_z))

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Compute the statistics of ``standardize`` over the training rows."""
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
    r"""Margin violations of the wrong classes: :math:`[\Delta + F(x, a_c) - F(x, a_y)]_+`.

    Shapes: [b, n_classes], [b] → [b, n_classes], 0 for the correct class.

    >>> hinges(torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([0]), margin=1.0)
    tensor([[0.0000, 0.5000, 0.0000]])
    """
    correct = labels[:, None]
    return (margin + scores - scores.gather(1, correct)).relu().scatter(1, correct, 0.0)


def devise_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Sum of the hinges of all wrong classes, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).sum(dim=1).mean()


def ale_loss(scores: Tensor, labels: Tensor, margin: float, weights: Tensor | None = None) -> Tensor:
    r"""Weighted ranking loss :math:`\frac{\beta_r}{r} \sum_c [\Delta + F(x, a_c) - F(x, a_y)]_+`, mean over rows.

    :math:`r` counts the classes that violate the margin, and :math:`\beta_r = \sum_{i \le r} \alpha_i`.

    Args:
        scores: [b, n_classes].
        labels: [b].
        weights: α, [n_classes − 1]; default 1/i, as published.
    """
    violations = hinges(scores, labels, margin)
    if weights is None:
        weights = torch.arange(1, scores.shape[1], device=scores.device, dtype=scores.dtype).reciprocal()
    rank = (violations > 0).sum(dim=1)  # [b]
    beta = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
    return (beta[rank] / rank.clamp(min=1) * violations.sum(dim=1)).mean()


def sje_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    """The largest hinge of a wrong class, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).amax(dim=1).mean()


def build(config: RankingConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> BilinearModel:
    """A model to load weights into."""
    return BilinearModel(config, d_a, d_z)


def ranking_fit(ranking_loss: RankingLoss) -> Fit:
    """The `fit` that trains a bilinear compatibility with a ranking loss over all seen classes."""

    def fit(dataset: ZeroShotDataset, config: RankingConfig, seed: int, context: FitContext) -> Fitted:
        rows = TrainingRows.of(dataset, context.device)
        model = BilinearModel(config, dataset.d_a, dataset.d_z, seed).to(context.device)
        model.of_feature.fit(rows.features)
        model.of_descriptor.fit(rows.descriptors)
        # Normalize both sides once instead of in every batch.
        descriptors = model.of_descriptor(rows.descriptors)

        def loss(features: Tensor, labels: Tensor) -> Tensor:
            return ranking_loss(features @ model.compatibility(descriptors).T, labels, config.margin)

        features = model.of_feature(rows.features)
        hint = 'lower `lr` or use `feature_normalization="unit"`'
        return Fitted(model, train(model, loss, features, rows.labels, config, seed=seed, context=context, hint=hint))

    return fit


fit_devise, fit_ale, fit_sje = (ranking_fit(loss) for loss in (devise_loss, ale_loss, sje_loss))
