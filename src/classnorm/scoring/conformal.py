"""Prediction sets: the smallest sets of classes that hold the right one with a given probability.

The surprise of the right class (`metrics.surprise`) is measured on the held-out rows of validation splits, on each side
apart: a set holds the seen classes below the quantile of the seen side and the unseen ones below that of the unseen
side, so that both sides are covered.

Rows of an unseen class are alike, and what is to come is another class. So on the unseen side the exchangeable unit is
the class: classes have equal weight, and with n of them the quantile is taken at coverage · (1 + 1/n), as if the
next class might be the most surprising of all. On the seen side the classes are those of the validation, and n is the
number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm.metrics import class_quantiles, surprise
from classnorm.scoring.novelty import ScoredSplit

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Rows, Scorer

_LEVELS = np.linspace(0.0, 1.0, 401)


@dataclass(frozen=True)
class SideQuantiles:
    """Quantiles of the surprise of the right class, and the number of classes or rows that they are from."""

    count: int
    quantiles: tuple[float, ...]
    """At evenly spaced levels from 0 to 1."""

    def threshold(self, coverage: float) -> float:
        """The largest surprise of a class in a set; infinite if there were too few to say."""
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
    """What validation says about the surprise of the right class."""

    seen: SideQuantiles
    unseen: SideQuantiles

    @classmethod
    def measure(cls, splits: Sequence[ScoredSplit], temperature: float) -> PredictionSets | None:
        """From validation splits; None if they hold no rows on one side."""
        values, classes, of_seen = [], [], []
        for number, split in enumerate(splits):
            table = surprise(split.scores, temperature)
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
        """The largest surprise of each class in a set, [n_classes]."""
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
        limits: [n_classes], the largest surprise of each class in a set.
    """
    inside: npt.NDArray[np.bool_] = surprise(scores, temperature) <= limits
    inside[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return inside


def prediction_sets(scorer: Scorer, features: Rows, limits: npt.NDArray[np.float64]) -> list[list[str]]:
    """The names of the classes in the set of each row, best first; `limits` as of `members`."""
    sets = []
    for _, logits in scorer.logit_blocks(features):
        scores = scorer.calibration.apply(logits, scorer.seen)
        for row, inside in zip(scores, members(scores, scorer.temperature, limits), strict=True):
            classes = np.flatnonzero(inside)
            order = classes[np.argsort(-row[classes], kind="stable")]
            sets.append([scorer.class_names[c] for c in order])
    return sets
