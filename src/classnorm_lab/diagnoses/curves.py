"""Curves of several seeds as data for a plot, and the colours of the models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from classnorm.report.draw import COLORS
from classnorm.results.artifact import Series

BLUE, ORANGE, GREEN, PINK, SKY, RED = COLORS
MODEL_COLORS = {
    "3-layer MLP + CN": BLUE,
    "3-layer MLP": ORANGE,
    "Linear": GREEN,
    "2-layer MLP": SKY,
    "MLP classifier": PINK,
}
"""The same in all plots."""
SCORE_COLORS = {"H": "#262626", "U": RED, "S": SKY}


def mean_series(
    label: str, model: str, variant: str, runs: Sequence[Sequence[float]], x: Sequence[float], shift: float = 0
) -> Series:
    """Mean and range over seeds, up to the length of the shortest run; `x` may be longer."""
    length = min(map(len, runs))
    values = np.array([run[:length] for run in runs])
    low, high = (rounded(values.min(axis=0)), rounded(values.max(axis=0))) if len(runs) > 1 else (None, None)
    at = [float(value + shift) for value in x[:length]]
    return Series(label, model, at, rounded(values.mean(axis=0)), low, high, variant)


def rounded(values: Iterable[float]) -> list[float]:
    """Values with 5 significant digits."""
    return [float(f"{value:.5g}") for value in values]
