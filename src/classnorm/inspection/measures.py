"""What the parts of an inspection measure with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NEAR", "SHOWN", "Doubles", "Spread", "row_norms"]

Doubles = npt.NDArray[np.float64]

NEAR = 1e-4  # cosine distance under which two rows are one picture, or two descriptors one class
SHOWN = 5  # examples kept of anything


@dataclass(frozen=True)
class Spread:
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
    """In float64, where no square of a float32 overflows or vanishes."""
    wide = rows.astype(np.float64)
    norms: Doubles = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return norms
