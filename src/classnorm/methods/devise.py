"""DeViSE: a bilinear compatibility trained with a hinge loss over all wrong classes.

Frome, Corrado, Shlens, Bengio, Dean, Ranzato, Mikolov: DeViSE: A Deep Visual-Semantic Embedding Model, NeurIPS 2013.
"""

from __future__ import annotations

from torch import Tensor

from classnorm.methods.parts.ranking import build as build  # of the method
from classnorm.methods.parts.ranking import hinges, ranking_fit


def devise_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Sum of the hinges of all wrong classes, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).sum(dim=1).mean()


fit = ranking_fit(devise_loss)
