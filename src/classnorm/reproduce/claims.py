"""Claims that one model has a higher H than another, and their verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.reproduction import Measurements, SeedRuns
from classnorm.reproduce.variants import Variant
from classnorm.results.numbers import number_text, signed
from classnorm.results.verdicts import Verdict, judge_difference

__all__ = ["Claim", "harmonic_verdict"]


@dataclass(frozen=True)
class Claim:
    """One variant has a higher H than another."""

    text: str
    better: Variant
    worse: Variant
    margin: float = 1.0
    """Difference in H at which the claim holds."""

    def verdict(self, benchmark: Benchmark, runs: Measurements) -> Verdict:
        better, worse = (runs[variant.label, benchmark.name] for variant in (self.better, self.worse))
        return harmonic_verdict(self.text, benchmark, better, worse, self.margin)


def harmonic_verdict(text: str, benchmark: Benchmark, better: SeedRuns, worse: SeedRuns, margin: float) -> Verdict:
    """The verdict on a claim that one model has a higher H than another."""
    high, low = better.mean("harmonic"), worse.mean("harmonic")
    difference = f"{signed(high - low)} over {len(better.results)} seeds"
    return Verdict(
        f"{text} (by {margin:g} H)",
        benchmark.label,
        f"H {number_text(high)} against {number_text(low)}: {difference}",
        judge_difference(better.values("harmonic"), worse.values("harmonic"), margin),
    )
