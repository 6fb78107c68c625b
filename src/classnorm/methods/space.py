"""Search spaces: the settings that a search varies, with their values or ranges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from classnorm.errors import ConfigError

__all__ = ["Choice", "Range", "Space", "grid"]


@dataclass(frozen=True)
class Choice:
    """A finite set of values."""

    values: tuple[Any, ...]

    def __contains__(self, value: Any) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Range:
    """An interval of numbers, sampled uniformly or log-uniformly."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def values(self) -> Choice:
        """Both ends and the middle, for a grid search."""
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        points = (self.low, middle, self.high)
        return Choice(tuple(dict.fromkeys(round(v) if self.whole else float(f"{v:.3g}") for v in points)))


Space = Mapping[str, Choice | Range]


def grid(space: Space) -> list[dict[str, Any]]:
    """All combinations of choices, the last setting varying fastest.

    >>> grid({"lr": Choice((0.1, 0.2)), "layers": Choice((1, 2))})[1]
    {'lr': 0.1, 'layers': 2}
    """
    ranges = [name for name, values in space.items() if isinstance(values, Range)]
    if ranges:
        raise ConfigError(f"a grid needs a list of values; write {ranges[0]}=a,b,c instead of a range")
    choices = [values.values for values in space.values() if isinstance(values, Choice)]
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*choices)]
