"""A reproduction: benchmarks, effort, engine and a folder of runs, and the measurements of variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from classnorm.errors import TrainingError
from classnorm.experiments.engine import Engine, Task, run_converging
from classnorm.experiments.experiment import Experiment
from classnorm.methods import MethodConfig, resolve
from classnorm.progress import Announce
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.variants import Variant
from classnorm.results.numbers import mean, mean_text
from classnorm.results.run_folder import Result
from classnorm.training import TrainingConfig

__all__ = ["QUICK", "Effort", "Measurements", "Reproduction", "SeedRuns", "measure"]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Size of the runs of a reproduction."""

    seeds: int = 3
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the MLPs that override the recipe."""
    shorten: int = 1
    """Divisor of the epochs of other methods."""
    diagnosis_width: int = 512
    """Hidden units in the figures of variance and smoothness."""
    variance_iterations: int = 300
    smoothness_iterations: int = 2500
    smoothness_every: int = 25
    formula_dimension: int = 8192
    """Largest dimension at which the variance formula is tested on Gaussian vectors."""
    search_trials: int = 8
    stream_epochs: int = 5


QUICK = Effort(
    seeds=2,
    changes={"hidden": 128, "epochs": 6, "lr": 2e-3, "validation_splits": 1},
    shorten=10,
    diagnosis_width=128,
    variance_iterations=60,
    smoothness_iterations=100,
    smoothness_every=10,
    formula_dimension=1024,
    search_trials=2,
    stream_epochs=1,
)


@dataclass(frozen=True)
class SeedRuns:
    """Runs that differ in the seed only."""

    results: tuple[Result | None, ...]
    """One per seed; None if training diverged."""

    @property
    def finished(self) -> list[Result]:
        return [result for result in self.results if result is not None]

    def values(self, score: str) -> list[float]:
        """One value per seed, 0 if training diverged."""
        return [0.0 if result is None else _value(result, score) for result in self.results]

    def mean(self, score: str) -> float:
        return mean(self.values(score))

    def cell(self, score: str, digits: int = 1, spread: bool = True) -> str:
        return mean_text(self.values(score), digits, spread) if self.finished else "diverged"


def _value(result: Result, score: str) -> float:
    return result.scores[score] if score in result.scores else float(result.document[score])


Key = TypeVar("Key")


@dataclass(frozen=True)
class Reproduction:
    """The data and resources from which tables and figures are made."""

    benchmarks: Sequence[Benchmark]
    effort: Effort
    engine: Engine
    folder: Path
    announce: Announce
    """Starts the progress display of a batch of runs."""
    image_split: Path | None = None
    """Official training and test images of CUB, for its class stream."""

    @property
    def available(self) -> list[Benchmark]:
        return [benchmark for benchmark in self.benchmarks if not benchmark.missing]

    @property
    def missing(self) -> list[str]:
        """How to get the benchmarks that are not available."""
        return [benchmark.missing for benchmark in self.benchmarks if benchmark.missing]

    @property
    def runs(self) -> Path:
        """Parent of the run folders."""
        return self.folder / "runs"

    def experiment(self, variant: Variant, benchmark: Benchmark, seed: int) -> Experiment:
        config = self.recipe(benchmark, variant.method, variant.recipe).replace(**variant.changes)
        return Experiment(benchmark.dataset, variant.method, variant.label, config, seed)

    def recipe(self, benchmark: Benchmark, method: str, recipe: str) -> MethodConfig:
        """The config of a recipe on a benchmark, shortened according to the effort."""
        _, config = resolve(benchmark.dataset, method, recipe)
        changes = self.changes(benchmark, method, recipe)
        if not changes and isinstance(config, TrainingConfig) and self.effort.shorten > 1:
            changes = {"epochs": max(1, config.epochs // self.effort.shorten)}
        return config.replace(**changes)

    def changes(self, benchmark: Benchmark, method: str, recipe: str) -> dict[str, Any]:
        """Overrides of a recipe on a benchmark; `best` has none, since it is short and the same for all data."""
        return {**benchmark.changes, **self.effort.changes} if method == "classnorm" and recipe != "best" else {}

    def run(
        self, stage: str, groups: Mapping[Key, Sequence[Task]], *, may_diverge: bool = False
    ) -> dict[Key, SeedRuns]:
        """Run the experiments that are not finished. Those of a group differ in the seed.

        Raises:
            TrainingError: a run failed; with `may_diverge`, for another reason than divergence.
        """
        experiments = [experiment for group in groups.values() for experiment in group]
        failed = run_converging(experiments, self.runs, self.engine, self.announce(stage))
        errors = [failure.message for failure in failed.values() if not (may_diverge and failure.diverged)]
        if errors:
            raise TrainingError(f"{stage}: a run failed: {errors[0]}")
        return {
            key: SeedRuns(tuple(None if e.name in failed else Result.read(self.runs / e.name) for e in group))
            for key, group in groups.items()
        }


Measurements = Mapping[tuple[str, str], SeedRuns]
"""(label of a variant, name of a benchmark) → its runs."""


def measure(reproduction: Reproduction, stage: str, variants: Sequence[Variant]) -> Measurements:
    """Run variants on all available benchmarks."""
    seeds = range(reproduction.effort.seeds)
    groups = {
        (variant.label, benchmark.name): [reproduction.experiment(variant, benchmark, seed) for seed in seeds]
        for variant in variants
        for benchmark in reproduction.available
    }
    return reproduction.run(stage, groups, may_diverge=True)
