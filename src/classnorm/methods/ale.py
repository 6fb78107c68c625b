"""ALE: a bilinear compatibility trained with a weighted ranking loss that emphasises the top of the list.

Akata, Perronnin, Harchaoui, Schmid: Label-Embedding for Image Classification, TPAMI 2016 (first at CVPR 2013).
"""

from __future__ import annotations

import torch
from torch import Tensor

from classnorm.methods.parts.ranking import build as build  # of the method
from classnorm.methods.parts.ranking import hinges, ranking_fit


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


fit = ranking_fit(ale_loss)
