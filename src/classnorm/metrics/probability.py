r"""Probabilities from scores by temperature scaling, and their calibration error.

A softmax of raw scores ranks classes well but is over- or underconfident by a common factor. Temperature scaling
divides all scores by T, fitted on validation rows; it changes the confidence of predictions, not the predictions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from classnorm.metrics.accuracy import check_scores

Floats = npt.NDArray[np.float64]

_RANGE = 100.0  # the temperature is within this factor of the spread of the scores


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
