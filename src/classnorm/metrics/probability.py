r"""Probabilities from scores by temperature scaling, their calibration error, and prediction sets.

A softmax of raw scores ranks classes well but is over- or underconfident by a common factor. Temperature scaling
divides all scores by T, fitted on validation rows; it changes the confidence of predictions, not the predictions.

Sets of classes that hold the right one with a given probability (split-conformal prediction): a class c of a row joins
the set if its nonconformity score :math:`-\log (K p_c)` is at most a quantile of that of the right class over
validation rows. K is the number of competing classes: validation has fewer than the final model, and a probability of
0.1 means more among 1000 classes than among 10.

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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from classnorm.metrics.accuracy import check_scores

Floats = npt.NDArray[np.float64]

_RANGE = 100.0  # the temperature is within this factor of the spread of the scores


class ScoredSplit(NamedTuple):
    """Calibrated scores of the held-out rows of a validation split."""

    scores: Floats  # [n, n_classes]
    labels: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]


def softmax(scores: npt.ArrayLike, temperature: float = 1.0) -> Floats:
    r"""Probabilities :math:`p_c = e^{s_c / T} / \sum_k e^{s_k / T}` of each row.

    >>> softmax([[0.0, 0.0], [np.log(3.0), 0.0]])
    array([[0.5 , 0.5 ],
           [0.75, 0.25]])
    """
    scaled = np.asarray(scores, dtype=np.float64) / temperature
    scaled -= scaled.max(axis=1, keepdims=True)
    np.exp(scaled, out=scaled)
    scaled /= scaled.sum(axis=1, keepdims=True)
    return scaled


def fit_temperature(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    r"""The T that minimises the negative log-likelihood :math:`-\frac1n \sum_i \log p_{i, y_i}` of `softmax`.

    The likelihood has a single optimum in 1/T. It may be at infinity (if every row is right, any lower T is better), so
    T stays within a factor of 100 of the mean difference between a row's best and average score. T is 1 if there is
    nothing to fit: no rows, or no differences between scores.

    Args:
        scores: [n, n_classes], calibrated or not.
        labels: [n], index of the true class.

    >>> round(fit_temperature([[2.0, 0.0]] * 4, labels=[0, 0, 0, 1]), 3)  # 2 / log 3: three of four are right
    1.82
    """
    from scipy.optimize import minimize_scalar  # here, because the import takes long
    from scipy.special import logsumexp

    table, index = _check(scores, labels)
    if not table.size:
        return 1.0
    with np.errstate(invalid="ignore"):
        table = table - table.max(axis=1, keepdims=True)
    spread = -float(table.mean())
    if not (np.isfinite(spread) and spread > 0):
        return 1.0
    table /= spread
    true = table[np.arange(len(index)), index]

    def loss(log_temperature: float) -> float:
        beta = np.exp(-log_temperature)
        return float(np.mean(logsumexp(beta * table, axis=1) - beta * true))

    limit = float(np.log(_RANGE))
    optimum = minimize_scalar(loss, bounds=(-limit, limit), method="bounded", options={"xatol": 1e-5})
    return spread * float(np.exp(optimum.x))


def expected_calibration_error(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15) -> float:
    r"""ECE :math:`= \sum_b \frac{|B_b|}{n} \, |\mathrm{acc}(B_b) - \mathrm{conf}(B_b)|`, a fraction between 0 and 1.

    Bins are intervals of equal width of the probability of the best class; acc is the share of correct rows in a bin,
    conf the mean of that probability. NaN without rows.

    Args:
        probabilities: [n, n_classes].
        labels: [n], index of the true class.

    >>> round(expected_calibration_error([[0.75, 0.25]] * 4, labels=[0, 0, 1, 1]), 3)  # 75 % sure, right half the time
    0.25
    """
    table, index = _check(probabilities, labels)
    if not len(table):
        return float("nan")
    best = table.argmax(axis=1)
    confidence = table[np.arange(len(index)), best]
    bin_of = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gap = np.bincount(bin_of, weights=(best == index) - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(index))


def _check(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, npt.NDArray[np.int64]]:
    table: Floats = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"scores must be [n, n_classes], not {table.shape}")
    return table, check_scores(table, labels, np.ones(table.shape[1], dtype=bool))[1]


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
class GroupQuantiles:
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
    def read(cls, document: Any) -> GroupQuantiles:
        values = np.array(document["quantiles"], dtype=np.float64)
        if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all() or int(document["count"]) < 1:
            raise ValueError("quantiles of prediction sets")
        return cls(int(document["count"]), tuple(values.tolist()))


@dataclass(frozen=True)
class PredictionSets:
    """What validation says about the nonconformity score of the right class."""

    seen: GroupQuantiles
    unseen: GroupQuantiles

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
            GroupQuantiles(int(side.sum()), tuple(seen.tolist())),
            GroupQuantiles(len(np.unique(owner[~side])), tuple(unseen.tolist())),
        )

    def limits(self, seen: npt.NDArray[np.bool_], coverage: float) -> npt.NDArray[np.float64]:
        """The largest nonconformity score of each class in a set, [n_classes]."""
        return np.where(seen, self.seen.threshold(coverage), self.unseen.threshold(coverage))

    @classmethod
    def read(cls, document: Any) -> PredictionSets:
        """From the document of a saved model."""
        return cls(GroupQuantiles.read(document["seen"]), GroupQuantiles.read(document["unseen"]))


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
