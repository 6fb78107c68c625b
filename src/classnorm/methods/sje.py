"""SJE: a bilinear compatibility trained with the structured hinge loss, on the worst violating class only.

Akata, Reed, Walter, Lee, Schiele: Evaluation of Output Embeddings for Fine-Grained Image Classification, CVPR 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classnorm.methods.parts.ranking import RankingConfig, hinges, ranking_method

__all__ = ["METHOD", "SJEConfig", "sje_loss"]


@dataclass(frozen=True, kw_only=True)
class SJEConfig(RankingConfig):
    """Settings of SJE."""


def sje_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    """The largest hinge of a wrong class, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).amax(dim=1).mean()


METHOD = ranking_method(SJEConfig, sje_loss)
