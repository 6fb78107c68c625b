"""Distances as logits, dropout, positions of feature maps, and classes that a model knows from training."""

from __future__ import annotations

import torch
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.training import seeded

_STREAM = 2  # tells the draws of dropout from others of the same step
_ROUNDING = 1e-4  # of a descriptor read from a table, relative to its norm


def negative_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """−‖z − p‖², expanded to avoid an [n, n_classes, d_z] tensor.

    Shapes: [n, d_z], [n_classes, d_z] → [n, n_classes].

    >>> negative_distances(torch.tensor([[3.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([[  0., -25.]])
    """
    squares = features.square().sum(dim=1, keepdim=True) + prototypes.square().sum(dim=1)
    return torch.addmm(squares.neg(), features, prototypes.T, alpha=2.0)


class StepDropout:
    """Zeroes a share of the values and scales up the rest; the draws depend only on (seed, step)."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self.seed = share, seed
        self.generator = torch.Generator()

    def start(self, step: int) -> None:
        """Seed the draws of a step."""
        seeded(self.seed, step, _STREAM, generator=self.generator)

    def __call__(self, values: Tensor) -> Tensor:
        if not self.share:
            return values
        kept = torch.empty(values.shape).bernoulli_(1.0 - self.share, generator=self.generator)
        return values * kept.div_(1.0 - self.share).to(values.device)


def channels_of(d_z: int, positions: int) -> int:
    """Channels of a feature map with d_z values in a row."""
    if d_z % positions:
        raise ConfigError(
            f"positions is {positions}, which does not divide the {d_z} dimensions of the features; "
            "feature maps are made by classnorm extract with `maps`"
        )
    return d_z // positions


def check_positions(dataset: ZeroShotDataset, positions: int) -> None:
    """Raise a `ConfigError` if the dataset says that its rows are other maps."""
    maps = dataset.provenance.get("maps")
    if maps and positions != dataset.positions:
        raise ConfigError(f"positions is {positions}, but rows of {dataset.name} are maps of {maps}; leave it out")


def known_classes(descriptors: Tensor, known: Tensor) -> Tensor:
    """The position of each class [n_classes, d_a] among the known ones [n_known, d_a], −1 for a new class.

    >>> known_classes(torch.tensor([[0.0, 2.0], [1.0, 1.0]]), torch.eye(2) * 2)
    tensor([ 1, -1])
    """
    # Small distances need exact differences; matrix products round them away.
    distance = torch.cdist(descriptors, known, compute_mode="donot_use_mm_for_euclid_dist")
    nearest, index = distance.min(dim=1)
    return torch.where(nearest > _ROUNDING * known.norm(dim=1)[index], -1, index)
