"""Constants, statistics and wording shared by the parts of an inspection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

NEAR = 1e-4  # cosine distance below which two rows are one image, or two descriptors one class
SHOWN = 5  # maximum number of examples


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Spread:
        """
        >>> Spread.of(np.array([3, 1, 8]))
        Spread(min=1.0, median=3.0, max=8.0)
        """
        return cls(float(values.min()), float(np.median(values)), float(values.max()))


def row_norms(rows: npt.NDArray[Any]) -> Doubles:
    """Compute L2 norms in float64, where squares of float32 values cannot overflow or underflow."""
    rows = rows.astype(np.float64)
    norms: Doubles = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def counted(n: int, noun: str, verb: str) -> str:
    """
    >>> counted(1, "row", "equal"), counted(2, "seen class", "have"), counted(2, "pair of classes", "are")
    ('1 row equals', '2 seen classes have', '2 pairs of classes are')
    """
    if n == 1:
        return f"1 {noun} { ({'are': 'is', 'have': 'has'}.get(verb, f'{verb}s')) }"
    head, of, tail = noun.partition(" of ")
    return f"{n} {head}{'es' if head.endswith('s') else 's'}{of}{tail} {verb}"


def some(items: Sequence[object], total: int | None = None) -> str:
    """
    >>> some(["a", "b", "c", "d"])
    'a, b, c, …'
    """
    return ", ".join(map(str, items[:3])) + (", …" if (total or len(items)) > 3 else "")
