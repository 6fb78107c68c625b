"""`Grid`: the settings that the validation tasks of a strategy choose from."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Grid:
    """All combinations of some values of some settings.

    >>> Grid({"lr": (0.01, 0.1), "penalty": (1.0,)}).points()
    [{'lr': 0.01, 'penalty': 1.0}, {'lr': 0.1, 'penalty': 1.0}]
    """

    values: Mapping[str, Sequence[Any]]
    """Setting → values to try."""
    refined: tuple[str, ...] = ()
    """Settings for which a second round tries the neighbours of the best value, a factor of √10 away."""
    bias: bool = False
    """Choose the bias of the seen scores too, always by mH: areas do not depend on it. It needs no further run."""

    @property
    def names(self) -> tuple[str, ...]:
        return *self.values, *(("bias",) if self.bias else ())

    def extended(self, **values: Sequence[Any]) -> Grid:
        """The grid with further settings and their values."""
        return replace(self, values={**self.values, **values})

    def without(self, fixed: Container[str]) -> Grid:
        """The grid without the settings in `fixed`."""
        values = {name: tried for name, tried in self.values.items() if name not in fixed}
        return Grid(values, tuple(name for name in self.refined if name in values), self.bias and "bias" not in fixed)

    def points(self) -> list[dict[str, Any]]:
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]
