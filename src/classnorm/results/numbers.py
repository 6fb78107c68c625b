"""Numbers in JSON and in tables: undefined values, means over seeds, signs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_UNDEFINED = "–"


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; NaN if any value is."""
    return float(np.mean(values))


def std(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def json_number(value: float | None, digits: int = 4) -> float | None:
    """A rounded number for JSON, which has no NaN: undefined values become null.

    >>> json_number(62.91234567), json_number(float("nan"))
    (62.9123, None)
    """
    return None if value is None or math.isnan(value) else round(float(value), digits)


def json_numbers(document: Any) -> Any:
    """A nested document with NaN replaced by null, unrounded.

    >>> json_numbers({"a": [1.0, float("nan")], "b": "text"})
    {'a': [1.0, None], 'b': 'text'}
    """
    if isinstance(document, Mapping):
        return {key: json_numbers(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [json_numbers(value) for value in document]
    return None if isinstance(document, float) and math.isnan(document) else document


def number_text(value: float | None, digits: int = 1) -> str:
    """A number for a table: a dash if undefined, no sign if it rounds to zero.

    >>> number_text(62.91), number_text(-0.04), number_text(None)
    ('62.9', '0.0', '–')
    """
    return _UNDEFINED if value is None or math.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"


def mean_text(values: Sequence[float], digits: int = 1, spread: bool = True) -> str:
    """`mean ± std` over seeds: the mean alone for a single seed, a dash if a value is undefined.

    >>> mean_text([55.0, 56.0, 57.0]), mean_text([55.0]), mean_text([55.0, float("nan")])
    ('56.0 ± 1.0', '55.0', '–')
    """
    center = number_text(mean(values), digits)
    if center == _UNDEFINED or not spread or len(values) < 2:
        return center
    return f"{center} ± {std(values):.{digits}f}"


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign, which zero does not have.

    >>> signed(2.31), signed(-0.44), signed(-0.04), signed(-30.2, 0)
    ('+2.3', '−0.4', '0.0', '−30')
    """
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]
