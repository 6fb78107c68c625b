"""A paired bootstrap over classes: how much a difference between two models depends on the test classes.

A few seeds are too few for a test, but a test set has tens to hundreds of classes. Each resample draws as many seen and
unseen classes as there are, with replacement, and the same ones for both models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """First model minus second, in percentage points, and its bootstrap interval."""

    value: float
    low: float
    high: float


def class_bootstrap(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    seen_mask: npt.ArrayLike,
    *,
    resamples: int = 4000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Difference]:
    """Differences in U, S and H (``unseen``, ``seen``, ``harmonic``), each averaged over the seeds of a model.

    Args:
        first: [n_seeds, n_classes], accuracy of each class in percent; NaN for a class without test rows.
        second: [n_seeds_2, n_classes], the model to compare with.
        seen_mask: [n_classes], true for seen classes.
        resamples: number of resamples.
        level: share of the resamples inside the interval, which leaves out the same share at both ends.

    Models that differ by the same amount on every class differ by it on every resample:

    >>> result = class_bootstrap([[60.0, 70.0, 80.0]], [[50.0, 60.0, 80.0]], seen_mask=[False, False, True])
    >>> result["unseen"], result["seen"]
    (Difference(value=10.0, low=10.0, high=10.0), Difference(value=0.0, low=0.0, high=0.0))
    """
    tables = [np.asarray(table, dtype=np.float64) for table in (first, second)]
    seen = np.asarray(seen_mask, dtype=bool)
    if any(table.ndim != 2 or table.shape[1] != len(seen) for table in tables):
        raise ValueError(f"accuracies must be [n_seeds, {len(seen)}], as seen_mask has {len(seen)} classes")
    tested = ~np.isnan(np.concatenate(tables)).any(axis=0)
    generator = np.random.default_rng(seed)
    # Row 0 is the test set itself: every class once.
    sides = {"unseen": tested & ~seen, "seen": tested & seen}
    shares = {side: _shares(int(mask.sum()), resamples, generator) for side, mask in sides.items()}
    averages = []  # for each model: score -> [resamples + 1]
    for table in tables:
        scores = {side: _averages(shares[side], table[:, mask]) for side, mask in sides.items()}
        total = scores["unseen"] + scores["seen"]  # [resamples + 1, n_seeds]
        product = 2 * scores["unseen"] * scores["seen"]
        scores["harmonic"] = np.divide(product, total, out=np.where(np.isnan(total), np.nan, 0.0), where=total > 0)
        averages.append({name: values.mean(axis=1) for name, values in scores.items()})
    return {name: _difference(averages[0][name] - averages[1][name], level) for name in averages[0]}


def _shares(n_classes: int, resamples: int, generator: np.random.Generator) -> Floats:
    """[resamples + 1, n_classes], the share of each class in a resample."""
    if not n_classes:
        return np.empty((resamples + 1, 0))
    even = np.full(n_classes, 1.0 / n_classes)
    drawn = generator.multinomial(n_classes, even, size=resamples) / n_classes
    return np.concatenate([even[None], drawn])


def _averages(shares: Floats, accuracies: Floats) -> Floats:
    """[resamples + 1, n_seeds]; NaN without classes."""
    if not shares.shape[1]:
        return np.full((len(shares), len(accuracies)), np.nan)
    return shares @ accuracies.T


def _difference(values: Floats, level: float) -> Difference:
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(values[1:], [tail, 1.0 - tail])
    return Difference(float(values[0]), float(low), float(high))
