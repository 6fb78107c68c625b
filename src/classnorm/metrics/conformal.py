r"""Sets of classes that hold the right one with a given probability (split-conformal prediction).

A class c of a row joins the set if its surprise :math:`-\log (K p_c)` is at most a quantile of the surprise of the
right class over validation rows. K is the number of competing classes: validation has fewer than the final model, and a
probability of 0.1 means more among 1000 classes than among 10.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from classnorm.metrics.probability import softmax

Floats = npt.NDArray[np.float64]


def surprise(scores: npt.ArrayLike, temperature: float = 1.0) -> Floats:
    r""":math:`-\log (K p_c)` of each class, [n, K], from calibrated scores [n, K]; 0 at a probability of 1/K.

    >>> surprise([[np.log(3.0), 0.0]]).round(3)
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
