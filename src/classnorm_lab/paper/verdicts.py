"""Claims of the paper, verdicts on them, and the rule that decides them from the scores of all seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np

from classnorm.results.artifact import Artifact
from classnorm.results.numbers import json_number, number_text, signed, std
from classnorm_lab.paper.measured import SCORINGS, Measured, Scoring, SeedRuns, Setting
from classnorm_lab.paper.variants import Variant

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
class Finding(Artifact):
    """A table or figure of the paper, measured here, with verdicts on its claims."""

    verdicts: list[Verdict] = field(default_factory=list)

    @classmethod
    def about(cls, artifact: Artifact, verdicts: Sequence[Verdict], notes: Sequence[str]) -> Self:
        """An artifact with verdicts and further notes."""
        return cls(**{**vars(artifact), "notes": [*artifact.notes, *notes]}, verdicts=list(verdicts))

    @classmethod
    def of_document(cls, content: dict[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> Self:
        return cls(**content, verdicts=[Verdict(**verdict) for verdict in verdicts])


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


@dataclass(frozen=True)
class Claim:
    """One variant has a higher H than another."""

    text: str
    better: Variant
    worse: Variant
    margin: float = 1.0
    """Difference in H at which the claim holds."""

    def verdicts(self, measured: Measured) -> list[Verdict]:
        """One for each scoring and each setting in which both were measured."""
        verdicts = []
        for setting in measured.available:
            better, worse = (measured.runs.get((v.label, setting.name)) for v in (self.better, self.worse))
            if better and worse:
                verdicts += [
                    harmonic_verdict(self.text, setting, better, worse, self.margin, scoring) for scoring in SCORINGS
                ]
        return verdicts


def harmonic_verdict(
    text: str, setting: Setting, better: SeedRuns, worse: SeedRuns, margin: float, scoring: Scoring
) -> Verdict:
    """The verdict on a claim that one model has a higher H than another, over the seeds that both have."""
    n = min(better.n, worse.n)
    high, low = (runs.values("harmonic", scoring)[:n] for runs in (better, worse))
    means = f"H {number_text(sum(high) / n)} against {number_text(sum(low) / n)}"
    difference = PairedDifference.of(high, low)
    return Verdict(
        f"{text} (by {margin:g} H)",
        setting.label,
        f"{means}: {difference.text()}",
        judge_difference(high, low, margin, digits=1),
        SCORINGS[scoring],
        json_number(difference.mean),
    )
