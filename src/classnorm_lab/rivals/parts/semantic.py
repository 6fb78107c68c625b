"""A network from features back to descriptors."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from classnorm_lab.rivals.parts.generation import SLOPE


class SemanticDecoder(nn.Module):
    """Feature → descriptor, with one hidden layer."""

    def __init__(self, d_a: int, d_z: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_z, hidden)
        self.descriptor = nn.Linear(hidden, d_a)

    def forward(self, features: Tensor) -> Tensor:
        """[…, d_z] → […, d_a]."""
        descriptors: Tensor = self.descriptor(self.units(features))
        return descriptors

    def units(self, features: Tensor) -> Tensor:
        """[…, d_z] → […, hidden]."""
        return F.leaky_relu(self.hidden(features), SLOPE, inplace=True)
