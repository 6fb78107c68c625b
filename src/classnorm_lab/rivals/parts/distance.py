"""Squared distances as logits."""

from __future__ import annotations

import torch
from torch import Tensor


def negative_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """−‖z − p‖², expanded to avoid an [n, n_classes, d_z] tensor.

    Shapes: [n, d_z], [n_classes, d_z] → [n, n_classes].

    >>> negative_distances(torch.tensor([[3.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([[  0., -25.]])
    """
    squares = features.square().sum(dim=1, keepdim=True) + prototypes.square().sum(dim=1)
    return torch.addmm(squares.neg(), features, prototypes.T, alpha=2.0)
