"""SJE: a bilinear compatibility trained by the structured hinge loss, against the worst violating class alone.

Akata, Reed, Walter, Lee, Schiele: Evaluation of Output Embeddings for Fine-Grained Image Classification, CVPR 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classnorm.methods.parts.ranking import RankingConfig, hinges, ranking_method

__all__ = ["METHOD", "SJEConfig", "sje_loss"]


@dataclass(frozen=True, kw_only=True)
class SJEConfig(RankingConfig):
    """SJE. The defaults are the `reference` recipe."""


def sje_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    r"""The largest hinge of a wrong class, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).amax(dim=1).mean()


# The publication's margin of 1 and plain stochastic gradient descent, one row per step at a constant rate. The rate
# and the number of epochs are choices made here.
PAPER = SJEConfig(
    batch_size=1,
    optimizer="sgd",
    lr=0.01,
    momentum=0.0,
    weight_decay=0.0,
    schedule="constant",
    attribute_normalization="unit-plain",
)
METHOD = ranking_method(SJEConfig, sje_loss, PAPER)
