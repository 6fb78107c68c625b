"""Claims that one model has a higher H than another, and their verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.results.numbers import json_number, number_text
from classnorm.results.verdicts import PairedDifference, Verdict, judge_difference
from classnorm_lab.paper.measured import SCORINGS, Measured, Scoring, SeedRuns, Setting
from classnorm_lab.paper.variants import Variant


@dataclass(frozen=True)
class Claim:
    """One variant has a higher H than another."""

    text: str
    better: Variant
    worse: Variant
    margin: float = 1.0
    """PairedDifference in H at which the claim holds."""

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
