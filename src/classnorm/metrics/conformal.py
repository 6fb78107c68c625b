r"""Sets of classes that hold the right one with a given probability (split-conformal prediction).

A class c of a row joins the set if its nonconformity score :math:`-\log (K p_c)` is at most a quantile of that of the
right class over validation rows. K is the number of competing classes: validation has fewer than the final model, and a
probability of 0.1 means more among 1000 classes than among 10.

The scores of the right classes are measured on the held-out rows of validation splits, for seen and unseen classes
apart: a set holds the seen classes below the quantile of the seen ones and the unseen classes below that of the unseen
ones, so that both are covered.

Rows of an unseen class are alike, and what is to come is another class. So of unseen classes the exchangeable unit is
the class: classes have equal weight, and with n of them the quantile is taken at coverage · (1 + 1/n), as if the next
class might be the most unusual of all. The seen classes are those of the validation, and n is the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.metrics.novelty import ScoredSplit
from classnorm.metrics.probability import softmax

Floats = npt.NDArray[np.float64]

_LEVELS = np.linspace(0.0, 1.0, 401)


def nonconformity(scores: npt.ArrayLike, temperature: float = 1.0) -> Floats:
    r""":math:`-\log (K p_c)` of each class, [n, K], from calibrated scores [n, K]; 0 at a probability of 1/K.

    >>> nonconformity([[np.log(3.0), 0.0]]).round(3)
    array([[-0.405,  0.693]])
    """
    probabilities = softmax(scores, temperature)
    with np.errstate(divide="ignore"):
        result: Floats = -np.log(probabilities) - np.log(probabilities.shape[1])
    return result


def class_quantiles(values: npt.ArrayLike, classes: npt.ArrayLike, levels: npt.ArrayLike) -> Floats:
    """Quantiles [n_levels] of rows in which every class has equal weight: the smallest value at or below which is
    at least this share.

    Args:
        values: [n]
        classes: [n], the class of each row.
        levels: [n_levels], from 0 to 1.

    >>> class_quantiles([1.0, 2.0, 3.0], classes=[0, 0, 1], levels=[0.25, 0.5, 0.6])
    array([1., 2., 3.])
    """
    table = np.asarray(values, dtype=np.float64)
    _, index, counts = np.unique(np.asarray(classes), return_inverse=True, return_counts=True)
    order = np.argsort(table, kind="stable")
    reached = np.cumsum(1.0 / counts[index][order]) / len(counts)
    position = np.searchsorted(reached, np.asarray(levels, dtype=np.float64) - 1e-9)
    quantiles: Floats = table[order][np.minimum(position, len(table) - 1)]
    return quantiles


@dataclass(frozen=True)
class SideQuantiles:
    """Quantiles of the nonconformity score of the right class, and the number of classes or rows that they are from."""

    count: int
    quantiles: tuple[float, ...]
    """At evenly spaced levels from 0 to 1."""

    def threshold(self, coverage: float) -> float:
        """The largest nonconformity score of a class in a set; infinite if there were too few to say."""
        level = coverage * (1.0 + 1.0 / self.count)
        if level > 1.0:
            return float("inf")
        return float(np.interp(level, np.linspace(0.0, 1.0, len(self.quantiles)), self.quantiles))

    @classmethod
    def read(cls, document: Any) -> SideQuantiles:
        values = np.array(document["quantiles"], dtype=np.float64)
        if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all() or int(document["count"]) < 1:
            raise ValueError("quantiles of prediction sets")
        return cls(int(document["count"]), tuple(values.tolist()))


@dataclass(frozen=True)
class PredictionSets:
    """What validation says about the nonconformity score of the right class."""

    seen: SideQuantiles
    unseen: SideQuantiles

    @classmethod
    def measure(cls, splits: Sequence[ScoredSplit], temperature: float) -> PredictionSets | None:
        """From validation splits; None if they hold no rows on one side."""
        values, classes, of_seen = [], [], []
        for number, split in enumerate(splits):
            table = nonconformity(split.scores, temperature)
            values.append(table[np.arange(len(table)), split.labels])
            classes.append(split.labels + number * len(split.seen))  # held out twice, a class counts twice
            of_seen.append(split.seen[split.labels])
        value, owner, side = np.concatenate(values), np.concatenate(classes), np.concatenate(of_seen)
        finite = np.minimum(value, 700.0)  # a probability that underflows
        if side.all() or not side.any():
            return None
        seen, unseen = (class_quantiles(finite[rows], owner[rows], _LEVELS) for rows in (side, ~side))
        return cls(
            SideQuantiles(int(side.sum()), tuple(seen.tolist())),
            SideQuantiles(len(np.unique(owner[~side])), tuple(unseen.tolist())),
        )

    def limits(self, seen: npt.NDArray[np.bool_], coverage: float) -> npt.NDArray[np.float64]:
        """The largest nonconformity score of each class in a set, [n_classes]."""
        return np.where(seen, self.seen.threshold(coverage), self.unseen.threshold(coverage))

    @classmethod
    def read(cls, document: Any) -> PredictionSets:
        """From the document of a saved model."""
        return cls(SideQuantiles.read(document["seen"]), SideQuantiles.read(document["unseen"]))


def members(
    scores: npt.NDArray[np.float64], temperature: float, limits: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Which classes are in the set of each row, [n, n_classes]; the best class always is.

    Args:
        limits: [n_classes], the largest nonconformity score of each class in a set.
    """
    inside: npt.NDArray[np.bool_] = nonconformity(scores, temperature) <= limits
    inside[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return inside
