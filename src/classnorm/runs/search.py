"""Hyperparameter search on validation splits of the training rows. It uses no test rows.

Every (settings, split) is a task of the engine, and the next trials depend on finished tasks alone: each batch is
sampled with a seed derived from its number. Running an interrupted search again samples the same trials and skips the
finished tasks.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, DataError, TrainingError
from classnorm.io.arrays import read_arrays
from classnorm.io.documents import read_json
from classnorm.io.escapes import csv_cells, csv_text
from classnorm.io.files import write_json
from classnorm.methods import Choice, FitContext, FitJob, MethodConfig, Range, Space, method_named
from classnorm.methods.method import VALIDATED
from classnorm.methods.space import grid
from classnorm.metrics import BestScores, Calibration, calibrated_scores, choose_calibration
from classnorm.progress import Progress, reported_as
from classnorm.results.run_folder import key_of, write_arrays
from classnorm.runs.engine import Engine, run_tasks
from classnorm.settings import check_seed
from classnorm.training import pick_device

_SECONDS = "seconds.json"


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Settings of a search."""

    sampler: Literal["tpe", "grid"] = "tpe"
    """tpe samples by the results of earlier trials (Optuna); grid tries all combinations."""
    trials: int = 25
    """Number of trials of tpe."""
    seconds: float = 0.0
    """CPU seconds of fits after which tpe starts no further trial; 0 is no limit."""
    batch: int = 4
    """Trials that tpe samples at a time; they run in parallel, and the next batch learns from them."""
    splits: int = 3
    """Validation splits over which the H of a trial is averaged."""
    prune: bool = True
    """Pruning: stop a trial after its first splits if it is below the median of earlier trials (tpe)."""
    seed: int = 0
    """Seed of the sampler and of the validation fits."""
    recipe_first: bool = False
    """Use the recipe's settings as the first trial of tpe."""

    def __post_init__(self) -> None:
        for name, most in (("trials", 10**6), ("batch", 10**6), ("splits", 1000)):
            if not 1 <= getattr(self, name) <= most:
                raise ConfigError(
                    f"`{name}` is {str(getattr(self, name))[:30]}; it must be at least 1, at most {most:,}"
                )
        if not self.seconds >= 0:
            raise ConfigError(f"`seconds` is {self.seconds}; it must be at least 0")
        check_seed(self.seed)


@dataclass(frozen=True)
class Trial:
    """A combination of settings and its score on validation."""

    number: int
    settings: dict[str, Any]
    state: Literal["complete", "pruned", "failed"]
    harmonic: float | None = None
    """Mean H over the validation splits, under the trial's calibration."""
    calibration: str | None = None
    splits: int = 0
    """Number of fitted splits."""
    error: str | None = None


@dataclass(frozen=True)
class ValidationTask:
    """A task of the engine: fit on a validation split and store the best seen and unseen scores, from which a
    calibration is chosen."""

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
        return key_of([self.job.key, self.config.validation, self.split], "validation")[:16]

    def run(self, folder: Path) -> None:
        from classnorm.scoring.fitting import validate  # PyTorch

        started = time.process_time()
        try:
            best_scores = validate(self.job, self.split, FitContext(pick_device())).best_scores
        finally:
            write_json(folder / _SECONDS, round(time.process_time() - started, 3))
        arrays = {key: value for key, value in asdict(best_scores).items() if isinstance(value, np.ndarray)}
        write_arrays(folder / self.marker, arrays)

    def seconds(self, root: Path) -> float:
        """CPU seconds of the fit; 0 if they were not recorded."""
        path = root / self.name / _SECONDS
        return float(read_json(path, float, "delete it")) if path.is_file() else 0.0

    def best_scores(self, root: Path) -> BestScores:
        path = root / self.name / self.marker
        try:
            return BestScores(**read_arrays(path))  # type: ignore[arg-type]
        except TypeError as error:
            raise DataError(f"{path}: its arrays are not those of a fit; delete it") from error


Candidates = dict[int, dict[str, Any]]
"""Trial number → settings."""


@dataclass
class _Rounds:
    """Runs trials split by split, so that a trial can be stopped between two splits."""

    dataset: ZeroShotDataset
    method: str
    base: MethodConfig
    config: SearchConfig
    root: Path
    engine: Engine
    total: int
    done: int = 0
    seconds: float = 0.0
    """CPU seconds of all fits."""
    trials: list[Trial] = field(default_factory=list)

    def run(self, candidates: Candidates, splits: range, best_scores: dict[int, list[BestScores]]) -> dict[int, str]:
        """Fit the candidates on some splits, add their scores to `best_scores`, and return the errors by trial."""
        fits, errors = {}, {}
        for number, settings in candidates.items():
            try:
                config = self.base.replace(**settings)
            except ConfigError as error:  # settings that exclude each other
                errors[number] = str(error)
            else:
                fits[number] = [
                    ValidationTask(self.dataset, self.method, config, self.config.seed, split) for split in splits
                ]
        with reported_as(self._of_all):
            failed = run_tasks([fit for group in fits.values() for fit in group], self.root, self.engine)
        self.done += len(candidates) * len(splits)
        self.seconds += sum(fit.seconds(self.root) for group in fits.values() for fit in group)
        for number, group in fits.items():
            messages = [failed[fit.name].message for fit in group if fit.name in failed]
            if messages:
                errors[number] = messages[0]
            else:
                best_scores.setdefault(number, []).extend(fit.best_scores(self.root) for fit in group)
        return errors

    def _of_all(self, batch: Progress) -> Progress:
        """The progress of a batch as progress of the search."""
        return Progress(self.done + batch.done, self.total)

    def score(self, best_scores: Sequence[BestScores]) -> tuple[Calibration, float]:
        if self.base.calibration in VALIDATED:
            return choose_calibration(best_scores, VALIDATED[self.base.calibration])
        fixed = Calibration.parse(self.base.calibration)
        return fixed, float(np.mean([calibrated_scores(part, fixed)[2] for part in best_scores]))

    def add(
        self,
        number: int,
        settings: dict[str, Any],
        state: Literal["complete", "pruned"],
        best_scores: Sequence[BestScores],
    ) -> Trial:
        calibration, harmonic = self.score(best_scores)
        self.trials.append(Trial(number, settings, state, round(harmonic, 4), str(calibration), len(best_scores)))
        return self.trials[-1]


def search(
    dataset: ZeroShotDataset,
    method: str,
    base: MethodConfig,
    space: Space,
    config: SearchConfig,
    root: Path,
    engine: Engine,
) -> tuple[list[Trial], MethodConfig]:
    """All trials, and the winning config with its calibration.

    Args:
        base: settings outside `space`. Its `calibration` is what each trial chooses from, its `validation` the kind of
            split.
        root: folder of the tasks.
    """
    if not space:
        raise ConfigError("nothing to search over; name settings in `space`")
    n_trials = len(grid(space)) if config.sampler == "grid" else config.trials
    rounds = _Rounds(dataset, method, base, config, root, engine, n_trials * config.splits)
    (_grid if config.sampler == "grid" else _tpe)(rounds, space)
    complete = [trial for trial in rounds.trials if trial.state == "complete" and trial.harmonic is not None]
    if not complete:
        raise TrainingError(f"every trial failed; the first said: {rounds.trials[0].error}")
    best = max(complete, key=lambda trial: (trial.harmonic, -trial.number))
    return sorted(rounds.trials, key=lambda t: t.number), base.replace(**best.settings, calibration=best.calibration)


def _grid(rounds: _Rounds, space: Space) -> None:
    candidates = dict(enumerate(grid(space)))
    best_scores: dict[int, list[BestScores]] = {}
    errors = rounds.run(candidates, range(rounds.config.splits), best_scores)
    for number, settings in candidates.items():
        if number in errors:
            rounds.trials.append(Trial(number, settings, "failed", error=errors[number]))
        else:
            rounds.add(number, settings, "complete", best_scores[number])


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
        recipe = {name: getattr(rounds.base, name) for name in space}
        study.enqueue_trial({name: value for name, value in recipe.items() if value in space[name]})
    startup = max(4, min(10, config.trials // 3))
    whole = range(config.splits)
    stages = [range(split, split + 1) for split in whole] if config.prune else [whole]
    for number, start in enumerate(range(0, config.trials, config.batch)):
        if config.seconds and rounds.seconds >= config.seconds:
            break
        seed = config.seed * 100_003 + number
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=startup, constant_liar=True, seed=seed)
        sampled = [study.ask(distributions) for _ in range(min(config.batch, config.trials - start))]
        live = {trial.number: trial for trial in sampled}
        best_scores: dict[int, list[BestScores]] = {}
        for splits in stages:
            candidates = {n: dict(trial.params) for n, trial in live.items()}
            for n, message in rounds.run(candidates, splits, best_scores).items():
                study.tell(live.pop(n), state=optuna.trial.TrialState.FAIL)
                rounds.trials.append(Trial(n, candidates[n], "failed", splits=splits.start, error=message))
            for n, trial in list(live.items()):
                trial.report(rounds.score(best_scores[n])[1], step=splits.stop - 1)
                if splits.stop < config.splits and trial.should_prune():
                    study.tell(live.pop(n), state=optuna.trial.TrialState.PRUNED)
                    rounds.add(n, candidates[n], "pruned", best_scores[n])
        for n, trial in live.items():
            study.tell(trial, rounds.add(n, dict(trial.params), "complete", best_scores[n]).harmonic)


def _distribution(values: Choice | Range) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, Choice):
        return CategoricalDistribution(values.values)
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)


def trials_csv(trials: Sequence[Trial]) -> str:
    """The trials as a CSV table, with a column per setting."""
    names = sorted({name for trial in trials for name in trial.settings})
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["trial", "state", "harmonic", "calibration", "splits", *names, "error"])
    for t in trials:
        values = [t.settings.get(name, "") for name in names]
        writer.writerow(
            [t.number, t.state, t.harmonic, t.calibration, t.splits, *csv_cells(values), csv_text(t.error or "")]
        )
    return buffer.getvalue()


def write_recipe(path: Path, method: str, config: MethodConfig) -> None:
    """Write a recipe file, which is a valid `recipe` for training."""
    write_json(path, {"format": "classnorm-recipe", "method": method, "config": config.as_dict()})
