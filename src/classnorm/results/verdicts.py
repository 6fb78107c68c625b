"""Verdicts on claims, and the rule that decides them from the scores of all seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from classnorm.results.numbers import signed, std

__all__ = ["RULE", "Judgement", "Verdict", "difference_text", "judge_bounds", "judge_difference", "weakest"]

RULE = (
    "A claim that one model is better holds if it is better with every seed (models are compared seed by seed) and by "
    "the stated margin on average; it holds weakly if it is better on average but one of the two fails; otherwise it "
    "does not hold. A claim about a size holds if every seed is within the stated bounds, weakly if the mean is. In "
    "square brackets: the 95 % interval of the paired difference over n seeds (Student's t)."
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


def judge_difference(better: Sequence[float], worse: Sequence[float], margin: float) -> Judgement:
    """Judge whether one model is better than another, from one value per seed; NaN counts as not measured.

    >>> judge_difference([55, 56, 57], [50, 51, 52], margin=2)
    'holds'
    >>> judge_difference([55, 56, 51], [50, 51, 52], margin=2)
    'holds weakly'
    >>> judge_difference([50], [50], margin=2)
    'does not hold'
    """
    differences = np.subtract(better, worse)
    if bool(np.isnan(differences).any()):
        return "not measured"
    if float(differences.mean()) <= 0:
        return "does not hold"
    return "holds" if float(differences.mean()) >= margin and bool((differences > 0).all()) else "holds weakly"


def difference_text(better: Sequence[float], worse: Sequence[float], digits: int = 1) -> str:
    """The mean paired difference, its 95 % interval and the number of seeds.

    >>> difference_text([55, 56, 57], [50, 52, 52])
    '+4.7 [+3.2, +6.1], n = 3'
    >>> difference_text([55], [50])
    '+5.0, n = 1'
    """
    differences = np.subtract(better, worse)
    n, center = len(differences), float(differences.mean())
    if n < 2 or math.isnan(center):
        return f"{signed(center, digits)}, n = {n}"
    half = float(stdtrit(n - 1, 0.975)) * std(differences.tolist()) / math.sqrt(n)
    return f"{signed(center, digits)} [{signed(center - half, digits)}, {signed(center + half, digits)}], n = {n}"


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
