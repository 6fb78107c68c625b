"""Rows that are feature maps: positions × channels."""

from __future__ import annotations

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError


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
