"""DeViSE: a bilinear compatibility trained so that the right class beats every wrong one by a margin.

Frome, Corrado, Shlens, Bengio, Dean, Ranzato, Mikolov: DeViSE: A Deep Visual-Semantic Embedding Model, NeurIPS 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classnorm.methods.parts.ranking import RankingConfig, hinges, ranking_method

__all__ = ["METHOD", "DeViSEConfig", "devise_loss"]


@dataclass(frozen=True, kw_only=True)
class DeViSEConfig(RankingConfig):
    """DeViSE. The defaults are the `reference` recipe."""


def devise_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    r"""Sum of the hinges of all wrong classes, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).sum(dim=1).mean()


# The publication's margin of 0.1 and unit descriptors, one row per step. The learning rate and the number of epochs
# are choices made here.
PAPER = DeViSEConfig(
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
METHOD = ranking_method(DeViSEConfig, devise_loss, PAPER)
