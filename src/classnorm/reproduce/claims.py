"""Claims of the paper about two variants, and their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.reproduction import Measurements
from classnorm.reproduce.variants import Variant
from classnorm.results.numbers import mean, number_text, signed
from classnorm.results.verdicts import Verdict, judge_difference

__all__ = ["Claim", "harmonic_verdict"]


@dataclass(frozen=True)
class Claim:
    """One variant has the higher H."""

    text: str
    better: Variant
    worse: Variant
    margin: float = 1.0
    """Points of H that the difference must reach to hold."""

    def verdict(self, benchmark: Benchmark, runs: Measurements) -> Verdict:
        better, worse = (runs[v.label, benchmark.name].values("harmonic") for v in (self.better, self.worse))
        return harmonic_verdict(self.text, benchmark, better, worse, self.margin)


def harmonic_verdict(
    text: str, benchmark: Benchmark, better: Sequence[float], worse: Sequence[float], margin: float
) -> Verdict:
    """Verdict on a claim that one model has the higher H, given its values with each seed."""
    difference = signed(mean(better) - mean(worse))
    measured = (
        f"H {number_text(mean(better))} against {number_text(mean(worse))}: {difference} over {len(better)} seeds"
    )
    return Verdict(f"{text} (by {margin:g} H)", benchmark.label, measured, judge_difference(better, worse, margin))
