"""Classes that a model knows from training, recognised by their descriptors."""

from __future__ import annotations

import torch
from torch import Tensor

_ROUNDING = 1e-4  # of a descriptor read from a table, relative to its norm


def known_classes(descriptors: Tensor, known: Tensor) -> Tensor:
    """The position of each class [n_classes, d_a] among the known ones [n_known, d_a], −1 for a new class.

    >>> known_classes(torch.tensor([[0.0, 2.0], [1.0, 1.0]]), torch.eye(2) * 2)
    tensor([ 1, -1])
    """
    # Small distances need exact differences; matrix products round them away.
    distance = torch.cdist(descriptors, known, compute_mode="donot_use_mm_for_euclid_dist")
    nearest, index = distance.min(dim=1)
    return torch.where(nearest > _ROUNDING * known.norm(dim=1)[index], -1, index)
