"""Verdicts on claims, and the rule that decides them from the scores of all seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from classnorm.results.numbers import signed, std

RULE = (
    "Models are compared seed by seed. A claim that one is better holds if the 95 % interval of the paired difference "
    "(Student's t over n seeds, in square brackets) lies above 0 and the mean difference reaches the stated margin; it "
    "holds weakly if the mean difference is above 0 but one of the two fails, as always with one seed, which has no "
    "interval; otherwise, also if the difference prints as 0.0, it does not hold. A claim about a size holds if every "
    "seed is within the stated bounds, weakly if the mean is."
)
Judgement = Literal["holds", "holds weakly", "does not hold", "not measured"]
_ORDER: tuple[Judgement, ...] = ("not measured", "does not hold", "holds weakly", "holds")


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds on a dataset."""

    claim: str
    dataset: str
    """Name and features."""
    measured: str
    verdict: Judgement
    scoring: str = ""
    """How the runs were scored, if there are several ways."""
    difference: float | None = None
    """The mean paired difference, for a claim that one model is better."""


@dataclass(frozen=True)
class PairedDifference:
    """A paired difference over seeds: its mean and, from two seeds on, the ends of its 95 % interval."""

    mean: float
    n: int
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, better: Sequence[float], worse: Sequence[float]) -> PairedDifference:
        differences = np.subtract(better, worse)
        n, center = len(differences), float(differences.mean())
        if n < 2 or math.isnan(center):
            return cls(center, n)
        from scipy.special import stdtrit  # only here: it takes a while to load

        half = float(stdtrit(n - 1, 0.975)) * std(differences.tolist()) / math.sqrt(n)
        return cls(center, n, center - half, center + half)

    def text(self, digits: int = 1) -> str:
        """Mean, interval and number of seeds.

        >>> PairedDifference.of([55, 56, 57], [50, 52, 52]).text(), PairedDifference.of([55], [50]).text()
        ('+4.7 [+3.2, +6.1], n = 3', '+5.0, n = 1')
        """
        if self.low is None or self.high is None:
            return f"{signed(self.mean, digits)}, n = {self.n}"
        return f"{signed(self.mean, digits)} [{signed(self.low, digits)}, {signed(self.high, digits)}], n = {self.n}"


def judge_difference(better: Sequence[float], worse: Sequence[float], margin: float, digits: int = 9) -> Judgement:
    """Judge whether one model is better than another, from one value per seed; NaN counts as not measured.

    A mean difference that is 0 in the printed digits is none.

    >>> judge_difference([55, 56, 57], [50, 51, 53], margin=2)
    'holds'
    >>> judge_difference([55, 56, 57], [50, 51, 56.9], margin=2), judge_difference([55], [50], margin=2)
    ('holds weakly', 'holds weakly')
    >>> judge_difference([50], [50], margin=2), judge_difference([50.04], [50], margin=2, digits=1)
    ('does not hold', 'does not hold')
    """
    difference = PairedDifference.of(better, worse)
    if math.isnan(difference.mean):
        return "not measured"
    if round(difference.mean, digits) <= 0:
        return "does not hold"
    is_clear = difference.low is not None and difference.low > 0
    return "holds" if is_clear and difference.mean >= margin else "holds weakly"


def judge_bounds(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> Judgement:
    """Judge whether a quantity is within bounds, from one value per seed.

    >>> judge_bounds([0.5, 2.0], 0.1, 10.0), judge_bounds([0.05, 2.0], 0.1, 10.0), judge_bounds([20.0], 0.1, 10.0)
    ('holds', 'holds weakly', 'does not hold')
    """
    array = np.asarray(values, dtype=float)
    if bool(((array >= low) & (array <= high)).all()):
        return "holds"
    return "holds weakly" if low <= float(array.mean()) <= high else "does not hold"


def weakest(*judgements: Judgement) -> Judgement:
    """The judgement of a claim that has several parts.

    >>> weakest("holds", "does not hold")
    'does not hold'
    """
    return min(judgements, key=_ORDER.index)
