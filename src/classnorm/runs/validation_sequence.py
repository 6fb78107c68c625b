"""The validation sequence: the first tasks of a stream choose the settings of a continual experiment.

They are then discarded, with their classes; a new model learns the other tasks, and only those are reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from classnorm.continual import Grid
from classnorm.continual.strategies import strategy_named
from classnorm.continual.stream import task_sizes
from classnorm.errors import ConfigError, TrainingError
from classnorm.results.run_folder import Result
from classnorm.runs.engine import Engine, run_tasks
from classnorm.runs.streams import BIASES, ContinualExperiment

Selection = Literal["mAUC", "mH", "mJA"]
GridName = Literal["default", "paper", "wide"]
VALIDATION_TASKS = 3
_STEP = 10**0.5  # factor between values in the second round
_WIDE = {"penalty": (1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6), "ridge": (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)}


def named_grid(name: GridName, strategy: str, encoder: bool = False) -> Grid:
    """A grid by its name. `encoder` says whether an encoder is trained jointly."""
    if name == "paper":
        return paper_grid(strategy, encoder)
    return default_grid(strategy) if name == "default" else wide_grid(strategy)


def wide_grid(strategy: str) -> Grid:
    """The default grid with penalties over ten orders of magnitude, or ridges over five; the best is refined, too."""
    grid = default_grid(strategy)
    wide = next((name for name in _WIDE if name in grid.values), None)
    if wide is None:
        raise ConfigError(f"strategy {strategy} has no penalty; choose from the default grid instead")
    return replace(grid.extended(**{wide: _WIDE[wide]}), refined=(*grid.refined, wide))


def default_grid(strategy: str) -> Grid:
    """The grid that a strategy declares."""
    grid = strategy_named(strategy).grid
    if grid is None:
        raise ConfigError(
            f"strategy {strategy} has no validation grid; add one to its class, or use `validation_tasks=0`"
        )
    return grid


def paper_grid(strategy: str, encoder: bool = False) -> Grid:
    """The grid of the paper's appendix. The paper does not report which penalties of EWC and MAS it tried."""
    kind = strategy_named(strategy)
    if not kind.paper_grid:
        raise ConfigError(f"strategy {strategy} is not in the paper; choose from the default grid instead")
    values: dict[str, Sequence[Any]] = {
        "init_distribution": ("uniform", "normal"),
        "grad_clip": (10.0, 100.0),
        "lr": (1e-3, 5e-3),
        "momentum": (0.9, 0.95),
    }
    if encoder:
        values["encoder_lr"] = (1e-3, 5e-3)
    if kind.grid and "penalty" in kind.grid.values:
        values["penalty"] = kind.grid.values["penalty"]
    return Grid(values)


@dataclass(frozen=True)
class Chosen:
    """Outcome of the validation sequence of an experiment."""

    experiment: ContinualExperiment
    """The experiment with the chosen settings, on the remaining tasks."""
    settings: dict[str, Any]
    """The chosen settings."""
    edges: tuple[str, ...]
    """Numeric settings at the smallest or largest value tried: a wider grid may have a better one."""
    best_bias: float
    """The bias with the highest mH on the validation tasks, whether or not it is among the settings."""

    def __str__(self) -> str:
        values = {name: f"{v:.3g}" if isinstance(v, float) else str(v) for name, v in self.settings.items()}
        return ", ".join(f"{name} {value}{' (edge)' * (name in self.edges)}" for name, value in values.items())


def validated(
    experiments: Sequence[ContinualExperiment],
    folder: Path,
    engine: Engine,
    *,
    score: Selection = "mAUC",
    validation_tasks: int = VALIDATION_TASKS,
    grid: Grid | None = None,
) -> list[Chosen]:
    """Choose the settings of each experiment on its first tasks, for the remaining tasks.

    Each experiment is searched separately. Ties go to the first setting in the grid.
    """
    grids = [grid or default_grid(experiment.strategy) for experiment in experiments]
    trials: list[list[ContinualExperiment]] = []
    for experiment, candidates in zip(experiments, grids, strict=True):
        n_tasks = len(task_sizes(experiment.dataset, experiment.tasks))
        if not 2 <= validation_tasks <= n_tasks - 2:
            raise ConfigError(
                f"{validation_tasks} validation tasks of {n_tasks}: at least 2 must choose and 2 be left to report"
            )
        start = replace(experiment, part=(0, validation_tasks))
        trials.append([_changed(start, point) for point in candidates.points()])
    best = _best(trials, folder, engine, score)
    if any(candidates.refined for candidates in grids):
        for group, candidates, winner in zip(trials, grids, best, strict=True):
            for name in candidates.refined:
                value = getattr(winner.config, name)
                group += [_changed(winner, {name: float(f"{v:.3g}")}) for v in (value / _STEP, value * _STEP)]
        best = _best(trials, folder, engine, score)
    curves = [Result.read(folder / winner.name).document["bias_curve"] for winner in best]
    return [_chosen(*choice, score) for choice in zip(best, trials, grids, curves, strict=True)]


def _changed(experiment: ContinualExperiment, values: Mapping[str, Any]) -> ContinualExperiment:
    return replace(experiment, config=replace(experiment.config, **values))


def _best(
    trials: Sequence[Sequence[ContinualExperiment]],
    folder: Path,
    engine: Engine,
    score: Selection,
) -> list[ContinualExperiment]:
    """The winner of each group, without the trials that failed."""
    failed = run_tasks([trial for group in trials for trial in group], folder, engine, repeat_diverged=False)
    best = []
    for group in trials:
        finished = [trial for trial in group if trial.name not in failed]
        if not finished:
            raise TrainingError(f"{group[0].strategy}: every trial failed: {failed[group[0].name].message}")
        scores = {trial.name: Result.read(folder / trial.name).document["scores"][score] for trial in finished}
        best.append(max(finished, key=lambda trial: scores[trial.name] or 0.0))
    return best


def _chosen(
    winner: ContinualExperiment,
    trials: Sequence[ContinualExperiment],
    grid: Grid,
    curve: Mapping[str, Sequence[float]],
    score: Selection,
) -> Chosen:
    """The winner's settings on the remaining tasks. `curve` has the scores of each bias on the validation tasks."""
    bias = float(curve["value"][int(np.argmax(curve["harmonic"]))])
    config = replace(winner.config, bias=bias) if grid.bias else winner.config
    tried: dict[str, list[Any]] = {name: [getattr(trial.config, name) for trial in trials] for name in grid.values}
    if grid.bias:
        tried["bias"] = BIASES.tolist()
    settings = {name: getattr(config, name) for name in grid.names}
    edges = (
        name
        for name, values in tried.items()
        if isinstance(settings[name], float) and len(set(values)) > 2 and settings[name] in (min(values), max(values))
    )
    chosen = {"by": score, "settings": list(settings)}
    experiment = replace(winner, config=config, part=(winner.part[1] or 0, None), chosen=chosen)
    return Chosen(experiment, settings, tuple(edges), bias)
