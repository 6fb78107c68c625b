"""Methods in whose space the nearest prototype wins."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["distance_logits"]


def distance_logits(rows: Tensor, prototypes: Tensor) -> Tensor:
    """−‖z − p‖², expanded to avoid an [n, n_classes, d] tensor.

    Shapes: [n, d], [n_classes, d] → [n, n_classes].

    >>> distance_logits(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [4.0, 6.0]]))
    tensor([[ -4., -25.]])
    """
    squares = rows.square().sum(dim=1, keepdim=True) + prototypes.square().sum(dim=1)
    return torch.addmm(squares.neg(), rows, prototypes.T, alpha=2.0)
