"""DeViSE: a bilinear compatibility trained with a hinge loss over all wrong classes.

Frome, Corrado, Shlens, Bengio, Dean, Ranzato, Mikolov: DeViSE: A Deep Visual-Semantic Embedding Model, NeurIPS 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classnorm.methods.parts.ranking import RankingConfig, hinges, ranking_method

__all__ = ["METHOD", "DeViSEConfig", "devise_loss"]


@dataclass(frozen=True, kw_only=True)
class DeViSEConfig(RankingConfig):
    """Settings of DeViSE."""


def devise_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Sum of the hinges of all wrong classes, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).sum(dim=1).mean()


METHOD = ranking_method(DeViSEConfig, devise_loss, margin=0.1, feature_normalization="none")
