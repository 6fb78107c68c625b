"""A reproduction: datasets, effort, engine and a folder of runs, and the measurements of variants."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from classnorm import progress
from classnorm.errors import TrainingError
from classnorm.io.files import digest
from classnorm.methods import MethodConfig, method_named, resolve
from classnorm.metrics import Calibration
from classnorm.results.run_folder import Result
from classnorm.runs.engine import Engine, Task, run_tasks
from classnorm.runs.experiment import Experiment
from classnorm.runs.streams import ImageMode
from classnorm.training import TrainingConfig
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.measured import Measured, SeedRuns
from classnorm_lab.paper.variants import Variant


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Size of the runs of a reproduction."""

    seeds: int = 3
    validation_splits: int = 1
    """Validation splits that choose the calibration of a run; each costs half a training."""
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
    search_trials: int = 40
    """Most trials of a method on the leaderboard."""
    search_seconds: float = 60.0
    """CPU seconds after which a method on the leaderboard starts no further trial; 0 is no limit."""
    stream_epochs: int = 5


QUICK = Effort(
    seeds=2,
    changes={"hidden": 128, "epochs": 6, "lr": 2e-3},
    shorten=10,
    diagnosis_width=128,
    variance_iterations=60,
    smoothness_iterations=100,
    smoothness_every=10,
    formula_dimension=1024,
    search_trials=2,
    search_seconds=0.0,
    stream_epochs=1,
)


Key = TypeVar("Key")


@dataclass(frozen=True)
class Reproduction:
    """The data and resources from which tables and figures are made."""

    datasets: Sequence[PaperDataset]
    effort: Effort
    engine: Engine
    folder: Path
    image_split: Path | None = None
    """Official training and test images of CUB, for its class stream."""
    known: Mapping[str, SeedRuns] = field(default_factory=dict)
    """Numbers that were measured before, by the keys of their runs."""
    until: float = math.inf
    """No further row of a table is started after this `time.monotonic()`."""
    known_streams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Arms of `czsl-images` that were measured before, by their keys."""
    images: ImageMode | None = None
    """Encoder and images of `czsl-images`."""

    @property
    def available(self) -> list[PaperDataset]:
        return [paper_dataset for paper_dataset in self.datasets if not paper_dataset.missing]

    @property
    def time_is_up(self) -> bool:
        return time.monotonic() > self.until

    @property
    def runs(self) -> Path:
        """Parent of the run folders."""
        return self.folder / "runs"

    def seeds(self, paper_dataset: PaperDataset, most: int | None = None) -> range:
        """Seeds of a row of a zero-shot table, at most `most` for a slow method."""
        count = 1 if paper_dataset.one_seed else self.effort.seeds
        return range(min(count, most or count))

    def experiment(self, variant: Variant, paper_dataset: PaperDataset, seed: int) -> Experiment:
        """A fit that is calibrated by validation, in the same way for every variant."""
        config = self.recipe(paper_dataset, variant.method, variant.recipe).replace(
            calibration="validation", validation="matched", validation_splits=self.effort.validation_splits
        )
        if variant.share is not None:
            config = _shortened(config, variant.share / self.effort.shorten)
        return Experiment(paper_dataset.dataset, variant.method, variant.label, config.replace(**variant.changes), seed)

    def recipe(self, paper_dataset: PaperDataset, method: str, recipe: str) -> MethodConfig:
        """The config of a recipe on a dataset, shortened according to the effort."""
        _, config = resolve(paper_dataset.dataset, method, recipe)
        changes = self.changes(paper_dataset, method, recipe)
        if not changes and self.effort.shorten > 1 and hasattr(config, "epochs"):
            changes = {"epochs": max(1, config.epochs // self.effort.shorten)}
        return config.replace(**changes)

    def changes(self, paper_dataset: PaperDataset, method: str, recipe: str) -> dict[str, Any]:
        """Overrides of a recipe on a dataset; `best` has none, since it is short and the same for all data."""
        return {**paper_dataset.changes, **self.effort.changes} if method == "classnorm" and recipe != "best" else {}

    def run(
        self, stage: str, groups: Mapping[Key, Sequence[Task]], *, may_diverge: bool = False
    ) -> dict[Key, list[Result | None]]:
        """Run the experiments that are not finished. Those of a group differ in the seed; None is a diverged one.

        Raises:
            TrainingError: a run failed; with `may_diverge`, for another reason than divergence.
        """
        experiments = [experiment for group in groups.values() for experiment in group]
        with progress.stage(stage):
            failed = run_tasks(experiments, self.runs, self.engine, repeat_diverged=False)
        errors = [failure.message for failure in failed.values() if not (may_diverge and failure.diverged)]
        if errors:
            raise TrainingError(f"{stage}: a run failed: {errors[0]}")
        return {
            key: [None if e.name in failed else Result.read(self.runs / e.name) for e in group]
            for key, group in groups.items()
        }


def measure(reproduction: Reproduction, stage: str, variants: Sequence[Variant]) -> Measured:
    """Run variants on all available datasets; rows that are not begun in time are left out."""
    datasets = {paper_dataset.name: paper_dataset for paper_dataset in reproduction.available}
    groups = {
        (variant.label, name): [
            reproduction.experiment(variant, paper_dataset, seed)
            for seed in reproduction.seeds(paper_dataset, variant.seeds)
        ]
        for name, paper_dataset in datasets.items()
        for variant in variants
    }
    keys = {row: _key(group, datasets[row[1]].released) for row, group in groups.items()}
    unknown = {row: group for row, group in groups.items() if keys[row] not in reproduction.known}
    runs = {row: reproduction.known[key] for row, key in keys.items() if key in reproduction.known}
    for portion in _portions(reproduction, unknown):
        if reproduction.time_is_up:
            break
        for row, group in reproduction.run(stage, portion, may_diverge=True).items():
            measured = SeedRuns.of(group, datasets[row[1]].released)
            numbers = {**measured.numbers, "schedule": [_schedule_share(groups[row][0])] * measured.n}
            runs[row] = replace(measured, numbers=numbers, key=keys[row])
    settings = [paper_dataset.setting for paper_dataset in reproduction.datasets]
    return Measured(settings, {row: runs[row] for row in groups if row in runs})


def _portions(reproduction: Reproduction, groups: Mapping[Key, Sequence[Task]]) -> Iterator[dict[Key, Sequence[Task]]]:
    """What to run at once: everything, or a few rows that keep all processes busy if the time is limited."""
    rows = list(groups)
    size = len(rows) if math.isinf(reproduction.until) else reproduction.engine.jobs or os.cpu_count() or 1
    for start in range(0, len(rows), size or 1):
        yield {row: groups[row] for row in rows[start : start + size]}


def _key(experiments: Sequence[Experiment], released: Calibration) -> str:
    return digest([[experiment.key for experiment in experiments], str(released)])[:16]


def _shortened(config: MethodConfig, share: float) -> MethodConfig:
    """A share of the epochs; the learning rate still drops after the same number of steps."""
    assert isinstance(config, TrainingConfig)
    return config.replace(epochs=max(1, round(share * config.epochs)), lr_drop_at=config.lr_drop_at / share)


def _schedule_share(experiment: Experiment) -> float | None:
    """The epochs of a method other than the MLP, or their tasks, as a share of those of its published schedule."""
    method = method_named(experiment.method)
    if experiment.method == "classnorm" or "paper" not in method.recipes:
        return None
    published = method.recipes["paper"](experiment.dataset)
    length, of = (float(getattr(c, "epochs", 0) * getattr(c, "tasks", 1)) for c in (experiment.config, published))
    return min(1.0, length / of) if of else None
