"""DeViSE: a bilinear compatibility trained so that the right class beats every wrong one by a margin.

Frome, Corrado, Shlens, Bengio, Dean, Ranzato, Mikolov: DeViSE: A Deep Visual-Semantic Embedding Model, NeurIPS 2013.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import FitContext, Fitted, Method, MethodConfig
from classnorm.methods.parts.ranking import RankingConfig, build, fit_ranking, hinges

__all__ = ["METHOD", "DeViSEConfig", "devise_loss"]


@dataclass(frozen=True, kw_only=True)
class DeViSEConfig(RankingConfig):
    """DeViSE. The defaults are the `reference` recipe."""


def devise_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    r"""Sum of the hinges of all wrong classes, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).sum(dim=1).mean()


def fit(dataset: ZeroShotDataset, config: DeViSEConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    return fit_ranking("devise", devise_loss, dataset, config, seed, context)


def paper(dataset: ZeroShotDataset) -> DeViSEConfig:
    """The publication's margin of 0.1 and unit descriptors, one row per step. The learning rate and the number of
    epochs are choices made here."""
    return DeViSEConfig(
        margin=0.1,
        batch_size=1,
        optimizer="sgd",
        lr=0.01,
        momentum=0.0,
        weight_decay=0.0,
        schedule="constant",
        feature_normalization="none",
        attribute_normalization="unit-plain",
    )


def reference(dataset: ZeroShotDataset) -> DeViSEConfig:
    """A short schedule, not tuned."""
    return DeViSEConfig()


RECIPES: dict[str, Callable[[ZeroShotDataset], MethodConfig]] = {"paper": paper, "reference": reference}
METHOD = Method(config=DeViSEConfig, recipes=RECIPES, build=build, fit=fit)
