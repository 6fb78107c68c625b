"""A reproduction: benchmarks, effort, engine and a folder that keeps every run; and the runs of variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from classnorm.errors import ClassNormError
from classnorm.experiments.engine import Engine, Failure, run_converging
from classnorm.experiments.experiment import Experiment
from classnorm.methods import MethodConfig, resolve
from classnorm.progress import Announce
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.variants import Variant
from classnorm.results.numbers import mean_text
from classnorm.results.run_folder import Result
from classnorm.training import TrainingConfig

__all__ = ["QUICK", "Effort", "Measurements", "Reproduction", "SeedRuns", "measure"]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much work goes into a reproduction."""

    seeds: int = 3
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the MLPs, over those of the recipe."""
    shorten: int = 1
    """Other methods train for their recipe's number of epochs divided by this."""
    diagnosis_width: int = 512
    """Hidden units of the models in the figures of variance and smoothness."""
    variance_iterations: int = 300
    smoothness_iterations: int = 2500
    smoothness_every: int = 25
    formula_dimension: int = 8192
    """Largest dimension of the Gaussian vectors that test the variance formula."""
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
class Reproduction:
    """What a table or figure is made on and with."""

    benchmarks: Sequence[Benchmark]
    effort: Effort
    engine: Engine
    folder: Path
    announce: Announce
    """Starts the display of a batch of runs."""
    image_split: Path | None = None
    """Official training and test images of CUB, for its class stream."""

    @property
    def available(self) -> list[Benchmark]:
        return [benchmark for benchmark in self.benchmarks if not benchmark.missing]

    @property
    def missing(self) -> list[str]:
        """Notes on how to get the benchmarks that are not available."""
        return [benchmark.missing for benchmark in self.benchmarks if benchmark.missing]

    @property
    def runs(self) -> Path:
        """The folder with a folder for each run."""
        return self.folder / "runs"

    def experiment(self, variant: Variant, benchmark: Benchmark, seed: int) -> Experiment:
        config = self.recipe(benchmark, variant.method, variant.recipe).replace(**variant.changes)
        return Experiment(benchmark.dataset, variant.method, variant.label, config, seed)

    def recipe(self, benchmark: Benchmark, method: str, recipe: str) -> MethodConfig:
        """A recipe for a dataset, shortened if the effort asks for it."""
        _, config = resolve(benchmark.dataset, method, recipe)
        changes = self.changes(benchmark, method, recipe)
        if not changes and isinstance(config, TrainingConfig) and self.effort.shorten > 1:
            changes = {"epochs": max(1, config.epochs // self.effort.shorten)}
        return config.replace(**changes)

    def changes(self, benchmark: Benchmark, method: str, recipe: str) -> dict[str, Any]:
        """Changes to a recipe on a dataset; `best` is short, and the same for all data."""
        return {**benchmark.changes, **self.effort.changes} if method == "classnorm" and recipe != "best" else {}

    def run(self, what: str, tasks: Sequence[Any]) -> dict[str, Failure]:
        """Run the tasks that are not finished; return those that failed, by name.

        A task that diverged before is not run again.
        """
        return run_converging(tasks, self.runs, self.engine, self.announce(what))


@dataclass(frozen=True)
class SeedRuns:
    """Runs of a variant on a benchmark, one per seed; None for a training that diverged."""

    results: tuple[Result | None, ...]

    def values(self, score: str) -> list[float]:
        """One value per seed, 0 for a training that diverged."""
        return [0.0 if result is None else _value(result, score) for result in self.results]

    def cell(self, score: str, spread: bool = False) -> str:
        if all(result is None for result in self.results):
            return "diverged"
        return mean_text(self.values(score), spread=spread)


Measurements = Mapping[tuple[str, str], SeedRuns]
"""(label of a variant, name of a benchmark) → its runs."""


def _value(result: Result, score: str) -> float:
    return result.scores[score] if score in result.scores else float(result.document[score])


def measure(reproduction: Reproduction, what: str, variants: Sequence[Variant]) -> Measurements:
    """Run variants on all available benchmarks."""
    experiments = {
        (variant.label, benchmark.name): [
            reproduction.experiment(variant, benchmark, seed) for seed in range(reproduction.effort.seeds)
        ]
        for variant in variants
        for benchmark in reproduction.available
    }
    failed = reproduction.run(what, [e for group in experiments.values() for e in group])
    unexpected = [failure.message for failure in failed.values() if not failure.diverged]
    if unexpected:
        raise ClassNormError(f"{what}: a run failed: {unexpected[0]}")
    return {
        key: SeedRuns(tuple(None if e.name in failed else Result.read(reproduction.runs / e.name) for e in group))
        for key, group in experiments.items()
    }
