r"""Accuracies of generalized zero-shot learning: U, S, H over the joint label space, and T1, all in percent; the exact
seen–unseen curve and its area.

Conventions, the same everywhere in this package:

- ``average="class"`` is the mean over classes of the per-class accuracy (the field's convention);
  ``average="sample"`` is the share of rows.
- Ties go to the class with the lower index.
- A class without rows does not count in averages, but competes for every prediction.
- The accuracy of a side without rows is NaN, and so is everything computed from it.

The curve: subtract λ from every seen score and let λ go from −∞ to ∞: S falls from its maximum to 0, U rises from 0 to
T1. Row i is assigned to a seen class while :math:`\lambda < \delta_i`, its best seen minus its best unseen score. The
curve has a corner for each distinct δ, so sorting δ gives all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
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
    from classnorm.metrics.accuracy import best_seen_and_unseen
    from classnorm.metrics.calibration import calibrated_gzsl_scores  # they import this module

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


Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class BestScores:
    """The best seen and the best unseen class of each row, which compete for it. All [n]."""

    best_seen: Floats
    """Highest seen score; −∞ if there is no seen class."""
    best_unseen: Floats
    seen_class: Integers
    """The class with that score; −1 if there is none."""
    unseen_class: Integers
    labels: Integers
    is_seen: npt.NDArray[np.bool_]
    """Whether the true class is seen."""
    average: Average = "class"

    @classmethod
    def joined(cls, parts: Sequence[BestScores]) -> BestScores:
        """The scores of all rows, from those of blocks of rows."""
        columns = [field.name for field in fields(cls) if field.name != "average"]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
        return cls(**arrays, average=parts[0].average)

    @cached_property
    def weights(self) -> Floats:
        """Weights of the rows within the side of their true class; they sum to 1 on each side."""
        weights = np.zeros(len(self.labels))
        for side in (self.is_seen, ~self.is_seen):
            weights[side] = row_weights(self.labels[side], self.average)
        return weights

    @property
    def seen_right(self) -> npt.NDArray[np.bool_]:
        """Whether the best seen class is the true one."""
        return np.equal(self.seen_class, self.labels)

    @property
    def unseen_right(self) -> npt.NDArray[np.bool_]:
        return np.equal(self.unseen_class, self.labels)

    @property
    def margin(self) -> Floats:
        """δ, the lead of the best seen class."""
        return self.best_seen - self.best_unseen


@dataclass(frozen=True)
class SeenUnseenCurve:
    """U and S in percent between consecutive thresholds, from "all seen" to "all unseen"."""

    thresholds: Floats  # [m], ascending; points[k] holds for thresholds[k-1] < λ < thresholds[k]
    seen: Floats  # [m + 1], non-increasing
    unseen: Floats  # [m + 1], non-decreasing

    @property
    def area(self) -> float:
        """AUSUC in percent: trapezoids under U as a function of S."""
        if np.isnan(self.seen[0]) or np.isnan(self.unseen[0]):  # a single point has no trapezoid to carry the NaN
            return float("nan")
        return float(np.trapezoid(self.unseen[::-1], self.seen[::-1]) / 100.0)

    @property
    def zsl(self) -> float:
        """T1: only unseen classes compete."""
        return float(self.unseen[-1])

    @property
    def harmonic(self) -> Floats:
        """H at each point."""
        total = self.seen + self.unseen
        return np.divide(2 * self.seen * self.unseen, total, out=np.zeros_like(total), where=total != 0)


def best_seen_and_unseen(
    logits: npt.ArrayLike, labels: npt.ArrayLike, seen_mask: npt.ArrayLike, average: Average = "class"
) -> BestScores:
    """Reduce [n, n_classes] logits to the best seen and the best unseen class. Arguments as in `gzsl_scores`."""
    scores, index, seen = check_scores(logits, labels, seen_mask)
    best_seen, seen_class = _best(scores, np.flatnonzero(seen))
    best_unseen, unseen_class = _best(scores, np.flatnonzero(~seen))
    return BestScores(best_seen, best_unseen, seen_class, unseen_class, index, seen[index], average)


def _best(
    scores: npt.NDArray[np.floating[Any]], columns: npt.NDArray[np.int64]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    if not len(columns):
        return np.full(len(scores), -np.inf), np.full(len(scores), -1)
    part = scores[:, columns]
    position = part.argmax(axis=1)
    return part[np.arange(len(part)), position].astype(np.float64), columns[position]


def curve_of(best_scores: BestScores) -> SeenUnseenCurve:
    """The curve from the best seen and the best unseen classes."""
    corners, position = np.unique(best_scores.margin, return_inverse=True)
    lost = np.bincount(
        position, best_scores.weights * (best_scores.is_seen & best_scores.seen_right), minlength=len(corners)
    )
    won = np.bincount(
        position, best_scores.weights * (~best_scores.is_seen & best_scores.unseen_right), minlength=len(corners)
    )
    seen = 100.0 * np.append(np.cumsum(lost[::-1])[::-1], 0.0)
    unseen = 100.0 * np.append(0.0, np.cumsum(won))
    if not best_scores.is_seen.any():
        seen = np.full_like(seen, np.nan)
    if best_scores.is_seen.all():
        unseen = np.full_like(unseen, np.nan)
    # A corner at ±∞ belongs to rows with classes on one side only, which never switch: no λ is beyond it.
    reached = np.ones(len(seen), dtype=bool)
    reached[:-1] &= corners != -np.inf
    reached[1:] &= corners != np.inf
    return SeenUnseenCurve(corners[np.isfinite(corners)], seen[reached], unseen[reached])


def seen_unseen_curve(
    logits: npt.ArrayLike, labels: npt.ArrayLike, seen_mask: npt.ArrayLike, average: Average = "class"
) -> SeenUnseenCurve:
    """The exact curve of U against S as the seen scores are lowered. Arguments as in `gzsl_scores`.

    >>> curve = seen_unseen_curve([[3.0, 1.0], [2.0, 1.0]], labels=[0, 1], seen_mask=[True, False])
    >>> curve.thresholds.tolist(), curve.seen.tolist(), curve.unseen.tolist()
    ([1.0, 2.0], [100.0, 100.0, 0.0], [0.0, 100.0, 100.0])
    """
    return curve_of(best_seen_and_unseen(logits, labels, seen_mask, average))


def ausuc(logits: npt.ArrayLike, labels: npt.ArrayLike, seen_mask: npt.ArrayLike, average: Average = "class") -> float:
    """Area under the seen–unseen curve in percent. Arguments as in `gzsl_scores`.

    >>> ausuc([[3.0, 1.0], [2.0, 1.0]], labels=[0, 1], seen_mask=[True, False])
    100.0
    """
    return seen_unseen_curve(logits, labels, seen_mask, average).area
