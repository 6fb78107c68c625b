"""SJE: a bilinear compatibility trained with the structured hinge loss, on the worst violating class only.

Akata, Reed, Walter, Lee, Schiele: Evaluation of Output Embeddings for Fine-Grained Image Classification, CVPR 2015.
"""

from __future__ import annotations

from torch import Tensor

from classnorm.methods.parts.ranking import build as build  # of the method
from classnorm.methods.parts.ranking import hinges, ranking_fit


def sje_loss(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    """The largest hinge of a wrong class, mean over rows: [b, n_classes], [b] → scalar."""
    return hinges(scores, labels, margin).amax(dim=1).mean()


fit = ranking_fit(sje_loss)
