"""Hyperparameter search on validation splits of the training rows; the test set is scored once, by the winner.

Every (settings, split) is a task with a folder of its own, and what to try next depends on finished tasks alone:
batches of trials are asked for with a seed made of the batch number. So a search that was killed is simply run again:
it asks for the same trials, finds the finished ones, and goes on where it was.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, TrainingError
from classnorm.experiments.engine import Engine, run_tasks
from classnorm.files import digest, write_json
from classnorm.methods import Choice, FitContext, FitJob, MethodConfig, Range, Space, method_named
from classnorm.methods.method import VALIDATED
from classnorm.methods.space import grid
from classnorm.metrics import Calibration, SideScores, calibrated_scores, choose_calibration
from classnorm.progress import OnProgress, Progress
from classnorm.results.run_folder import write_arrays
from classnorm.scoring.calibrated import validate
from classnorm.training import pick_device

__all__ = ["SearchConfig", "Trial", "ValidationFit", "search", "trials_csv", "write_recipe"]


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How to search."""

    sampler: Literal["tpe", "grid"] = "tpe"
    """tpe learns from earlier trials where to look (Optuna); grid tries all combinations."""
    trials: int = 25
    """Trials of tpe."""
    batch: int = 4
    """Trials that tpe asks for at a time; they run in parallel, and the next batch learns from them."""
    splits: int = 3
    """Validation splits over which a trial's H is averaged."""
    prune: bool = True
    """Give up a trial after the first splits if it is below the median of the trials before it (tpe)."""
    seed: int = 0
    """Of the sampler and of the validation fits."""
    recipe_first: bool = False
    """The recipe's own settings are the first trial of tpe."""

    def check(self) -> None:
        for name in ("trials", "batch", "splits"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class Trial:
    """One combination of settings and how it did on validation."""

    number: int
    settings: dict[str, Any]
    state: Literal["complete", "pruned", "failed"]
    harmonic: float | None = None
    """Mean H over the validation splits, each under the trial's calibration."""
    calibration: str | None = None
    splits: int = 0
    """Splits that were fitted."""
    error: str | None = None


@dataclass(frozen=True)
class ValidationFit:
    """A task of the engine: fit on a validation split and keep what a calibration needs to know."""

    dataset: ZeroShotDataset
    method: str
    config: MethodConfig
    seed: int
    split: int
    marker = "sides.npz"

    @property
    def job(self) -> FitJob:
        return FitJob(self.dataset, method_named(self.method), self.config, self.seed)

    @cached_property
    def name(self) -> str:
        return digest([self.job.key, self.config.validation, self.split])[:16]

    def run(self, folder: Path) -> None:
        sides = validate(self.job, self.split, FitContext(pick_device())).sides
        arrays = {key: value for key, value in asdict(sides).items() if isinstance(value, np.ndarray)}
        write_arrays(folder / self.marker, arrays)

    def sides(self, root: Path) -> SideScores:
        with np.load(root / self.name / self.marker, allow_pickle=False) as archive:
            return SideScores(**{key: archive[key] for key in archive.files})


Asked = dict[int, dict[str, Any]]
"""Trial number → settings."""


@dataclass
class _Rounds:
    """Runs trials split by split, so that a trial can be given up between two."""

    dataset: ZeroShotDataset
    method: str
    base: MethodConfig
    config: SearchConfig
    root: Path
    engine: Engine
    progress: OnProgress | None
    total: int
    done: int = 0
    trials: list[Trial] = field(default_factory=list)

    def run(self, asked: Asked, splits: range, sides: dict[int, list[SideScores]]) -> dict[int, str]:
        """Fit the asked trials on some splits, add what they gave to `sides`, and return the errors by trial."""
        tasks = {
            number: [ValidationFit(self.dataset, self.method, self._settled(s), self.config.seed, k) for k in splits]
            for number, s in asked.items()
        }
        failed = run_tasks(
            [task for group in tasks.values() for task in group],
            self.root,
            self.engine,
            self._shifted(self.done),
        )
        self.done += len(asked) * len(splits)
        errors = {}
        for number, group in tasks.items():
            messages = [failed[task.name].message for task in group if task.name in failed]
            if messages:
                errors[number] = messages[0]
            else:
                sides.setdefault(number, []).extend(task.sides(self.root) for task in group)
        return errors

    def _shifted(self, before: int) -> OnProgress | None:
        """Reports the progress of a batch as progress of the whole search."""
        report = self.progress
        return report and (lambda batch: report(Progress(before + batch.done, self.total)))

    def _settled(self, settings: dict[str, Any]) -> MethodConfig:
        return self.base.replace(**settings)

    def score(self, sides: Sequence[SideScores]) -> tuple[Calibration, float]:
        if self.base.calibration in VALIDATED:
            return choose_calibration(sides, VALIDATED[self.base.calibration])
        fixed = Calibration.parse(self.base.calibration)
        return fixed, float(np.mean([calibrated_scores(part, fixed)[2] for part in sides]))

    def finish(self, number: int, settings: dict[str, Any], sides: Sequence[SideScores]) -> Trial:
        calibration, harmonic = self.score(sides)
        trial = Trial(number, settings, "complete", round(harmonic, 4), str(calibration), len(sides))
        self.trials.append(trial)
        return trial


def search(
    dataset: ZeroShotDataset,
    method: str,
    base: MethodConfig,
    space: Space,
    config: SearchConfig,
    root: Path,
    engine: Engine,
    progress: OnProgress | None = None,
) -> tuple[list[Trial], MethodConfig]:
    """Search, and return all trials and the winning config, its calibration settled. No test row is looked at.

    Args:
        base: what is not in `space`; its `calibration` says what each trial chooses from, its `validation` the splits.
        root: folder of the tasks.
        progress: told the fits done, of the fits at most.
    """
    config.check()
    base.check()
    if not space:
        raise ConfigError("nothing to search over; name settings in `space`")
    n_trials = len(grid(space)) if config.sampler == "grid" else config.trials
    rounds = _Rounds(dataset, method, base, config, root, engine, progress, n_trials * config.splits)
    if config.sampler == "grid":
        _grid(rounds, space)
    else:
        _tpe(rounds, space)
    complete = [trial for trial in rounds.trials if trial.state == "complete" and trial.harmonic is not None]
    if not complete:
        raise TrainingError(f"every trial failed; the first said: {rounds.trials[0].error}")
    best = max(complete, key=lambda trial: (trial.harmonic, -trial.number))
    return sorted(rounds.trials, key=lambda t: t.number), base.replace(**best.settings, calibration=best.calibration)


def _grid(rounds: _Rounds, space: Space) -> None:
    asked = dict(enumerate(grid(space)))
    sides: dict[int, list[SideScores]] = {}
    errors = rounds.run(asked, range(rounds.config.splits), sides)
    for number, settings in asked.items():
        if number in errors:
            rounds.trials.append(Trial(number, settings, "failed", error=errors[number]))
        else:
            rounds.finish(number, settings, sides[number])


def _tpe(rounds: _Rounds, space: Space) -> None:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            '`sampler="tpe"` needs Optuna; pip install \'classnorm[search]\', or use `sampler="grid"`'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    config = rounds.config
    pruner = optuna.pruners.MedianPruner(n_startup_trials=5) if config.prune else optuna.pruners.NopPruner()
    study = optuna.create_study(direction="maximize", pruner=pruner)
    distributions = {name: _distribution(values) for name, values in space.items()}
    if config.recipe_first:
        own = {name: getattr(rounds.base, name) for name in space}
        study.enqueue_trial({name: value for name, value in own.items() if value in space[name]})
    for number, size in enumerate(_batch_sizes(config.trials, config.batch)):
        seed = config.seed * 100_003 + number
        startup = max(4, min(10, config.trials // 3))
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=startup, constant_liar=True, seed=seed)
        live = {trial.number: trial for trial in (study.ask(distributions) for _ in range(size))}
        sides: dict[int, list[SideScores]] = {}
        for split in range(config.splits):
            asked = {n: dict(trial.params) for n, trial in live.items()}
            errors = rounds.run(asked, range(split, split + 1), sides)
            for n, message in errors.items():
                study.tell(live.pop(n), state=optuna.trial.TrialState.FAIL)
                rounds.trials.append(Trial(n, asked[n], "failed", splits=split, error=message))
            for n, trial in list(live.items()):
                trial.report(rounds.score(sides[n])[1], step=split)
                if split + 1 < config.splits and trial.should_prune():
                    calibration, harmonic = rounds.score(sides[n])
                    study.tell(live.pop(n), state=optuna.trial.TrialState.PRUNED)
                    rounds.trials.append(Trial(n, asked[n], "pruned", round(harmonic, 4), str(calibration), split + 1))
        for n, trial in live.items():
            study.tell(trial, rounds.finish(n, dict(trial.params), sides[n]).harmonic)


def _batch_sizes(trials: int, batch: int) -> Iterator[int]:
    for start in range(0, trials, batch):
        yield min(batch, trials - start)


def _distribution(values: Choice | Range) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, Choice):
        return CategoricalDistribution(values.values)
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)


def trials_csv(trials: Sequence[Trial]) -> str:
    """The trials table: number, state, validation H, calibration, splits, and a column per setting."""
    names = sorted({name for trial in trials for name in trial.settings})
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["trial", "state", "harmonic", "calibration", "splits", *names, "error"])
    for t in trials:
        values = [t.settings.get(name, "") for name in names]
        writer.writerow([t.number, t.state, t.harmonic, t.calibration, t.splits, *values, t.error or ""])
    return buffer.getvalue()


def write_recipe(path: Path, method: str, config: MethodConfig) -> None:
    """A recipe file, which `train --recipe FILE` takes."""
    write_json(path, {"format": "classnorm-recipe", "method": method, "config": config.as_dict()})
