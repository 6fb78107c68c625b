"""Accuracies of generalized zero-shot learning: U, S, H over the joint label space, and T1. All in percent.

Conventions, the same everywhere in this package:

- ``average="class"`` is the mean over classes of the per-class accuracy (the field's convention);
  ``average="sample"`` is the share of rows.
- Ties go to the class with the lower index.
- A class without rows does not count in averages, but competes for every prediction.
- The accuracy of a side without rows is NaN, and so is everything computed from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Average = Literal["class", "sample"]


@dataclass(frozen=True)
class GZSLScores:
    """Scores in percent; also a mapping: ``scores["harmonic"]``, ``dict(scores)``."""

    unseen: float
    """U: accuracy on unseen classes over the joint label space."""
    seen: float
    """S: accuracy on seen classes over the joint label space."""
    harmonic: float
    """H = 2·U·S / (U + S)."""
    zsl: float
    """T1: accuracy on unseen classes when only unseen classes compete."""
    ausuc: float
    """Area under the seen–unseen curve, which does not depend on the calibration."""

    def __getitem__(self, name: str) -> float:
        return float(asdict(self)[name])

    def __iter__(self) -> Iterator[str]:
        return iter(asdict(self))

    def keys(self) -> Any:
        return asdict(self).keys()


def class_accuracies(correct: npt.ArrayLike, labels: npt.ArrayLike, n_classes: int) -> npt.NDArray[np.float64]:
    """Percentage of correct rows of each class; NaN for a class without rows.

    >>> class_accuracies([True, False, True], [0, 0, 2], n_classes=3)
    array([ 50.,  nan, 100.])
    """
    index = np.asarray(labels, dtype=np.int64)
    total = np.bincount(index, minlength=n_classes)
    right = np.bincount(index, weights=np.asarray(correct, dtype=np.float64), minlength=n_classes)
    percent = np.full(n_classes, np.nan)
    np.divide(100.0 * right, total, out=percent, where=total > 0)
    return percent


def row_weights(labels: npt.ArrayLike, average: Average = "class") -> npt.NDArray[np.float64]:
    """Weights of the rows in an average; they sum to 1.

    >>> row_weights([0, 0, 2]).tolist()
    [0.25, 0.25, 0.5]
    """
    index = np.asarray(labels)
    if average == "sample":
        return np.full(len(index), 1.0 / max(len(index), 1))
    _, inverse, count = np.unique(index, return_inverse=True, return_counts=True)
    return 1.0 / (len(count) * count[inverse])


def accuracy(predictions: npt.ArrayLike, labels: npt.ArrayLike, average: Average = "class") -> float:
    """Percentage of correct predictions, averaged over classes or over samples.

    >>> accuracy([0, 0, 1, 1], [0, 0, 0, 1])
    83.33333333333333
    >>> accuracy([0, 0, 1, 1], [0, 0, 0, 1], average="sample")
    75.0
    """
    index = np.asarray(labels)
    if not len(index):
        return float("nan")
    right = np.asarray(predictions) == index
    return 100.0 * float(row_weights(index, average) @ right)


def harmonic_mean(unseen: float, seen: float) -> float:
    """H = 2·U·S / (U + S); 0 if both are 0.

    >>> harmonic_mean(60.0, 30.0), harmonic_mean(0.0, 0.0)
    (40.0, 0.0)
    """
    return 0.0 if unseen + seen == 0 else 2.0 * unseen * seen / (unseen + seen)


def gzsl_scores(
    logits: npt.ArrayLike, labels: npt.ArrayLike, seen_mask: npt.ArrayLike, average: Average = "class"
) -> GZSLScores:
    """U, S, H, T1 and AUSUC of a test set.

    Args:
        logits: [n, n_classes], calibrated or not.
        labels: [n], index of the true class.
        seen_mask: [n_classes], true for seen classes.
        average: ``"class"`` (default) or ``"sample"``.

    >>> logits = [[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [2.0, 0.0, 1.0]]
    >>> scores = gzsl_scores(logits, labels=[0, 1, 2], seen_mask=[True, True, False])
    >>> scores.seen, scores.unseen, scores.harmonic, scores.zsl
    (100.0, 0.0, 0.0, 100.0)
    """
    from classnorm.metrics.calibration import calibrated_gzsl_scores  # they import this module
    from classnorm.metrics.curve import best_seen_and_unseen

    return calibrated_gzsl_scores(best_seen_and_unseen(logits, labels, seen_mask, average))


def check_scores(
    logits: npt.ArrayLike, labels: npt.ArrayLike, seen_mask: npt.ArrayLike
) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The arguments as arrays; raises a `ValueError` if their shapes or values do not fit."""
    scores, index, seen = np.asarray(logits), np.asarray(labels, dtype=np.int64), np.asarray(seen_mask, dtype=bool)
    if scores.ndim != 2 or scores.shape != (len(index), len(seen)):
        raise ValueError(
            f"logits must be [n, n_classes] = [{len(index)}, {len(seen)}], by labels and seen_mask, not {scores.shape}"
        )
    if len(index) and not (index.min() >= 0 and index.max() < len(seen)):
        raise ValueError(f"labels must be in 0…{len(seen) - 1}")
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    return scores, index, seen
