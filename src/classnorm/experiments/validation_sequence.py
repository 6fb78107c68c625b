"""The validation sequence of a continual experiment, which chooses its settings.

The first tasks of a stream choose settings and are then discarded, with their classes; a fresh model learns the other
tasks, and only those are reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from classnorm.continual import TaskStream
from classnorm.errors import ConfigError, TrainingError
from classnorm.experiments.engine import Engine, run_converging
from classnorm.experiments.streams import BIASES, ContinualExperiment
from classnorm.progress import OnProgress
from classnorm.results.run_folder import Result

__all__ = [
    "VALIDATION_TASKS",
    "Chosen",
    "Grid",
    "GridName",
    "Selection",
    "default_grid",
    "paper_grid",
    "validated",
]

Selection = Literal["mAUC", "mH", "mJA"]
GridName = Literal["default", "paper"]
VALIDATION_TASKS = 3
_RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
"""Learning rates of the embedder: the paper's, and those that models with and without CN need on features."""
_STEP = 10**0.5  # between rates in the second round
_PENALTIES = {"ewc": (1.0, 10.0, 100.0), "mas": (1e-4, 1e-2, 1.0)}


@dataclass(frozen=True)
class Grid:
    """What the validation sequence tries."""

    values: Mapping[str, Sequence[Any]]
    """Every combination of them."""
    refined: tuple[str, ...] = ()
    """Settings of which a second round tries the neighbours of the best value, √10 away."""
    bias: bool = False
    """Whether the bias of the seen scores is chosen too: always by mH, since areas are blind to it. Costs no run."""

    @property
    def names(self) -> tuple[str, ...]:
        return *self.values, *(("bias",) if self.bias else ())

    def without(self, fixed: Container[str]) -> Grid:
        """The settings that are not given."""
        values = {name: tried for name, tried in self.values.items() if name not in fixed}
        return Grid(values, tuple(name for name in self.refined if name in values), self.bias and "bias" not in fixed)

    def points(self) -> list[dict[str, Any]]:
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]


def default_grid(strategy: str) -> Grid:
    """Learning rates over four orders of magnitude, then around the best, and the weight of a penalty."""
    if strategy == "analytic":
        return Grid({"ridge": (0.01, 0.03, 0.1, 0.3), "length": (1.0, 1.3)}, bias=True)
    penalty = {"penalty": _PENALTIES[strategy]} if strategy in _PENALTIES else {}
    return Grid({"lr": _RATES, **penalty}, refined=("lr",))


def paper_grid(strategy: str, encoder: bool = False) -> Grid:
    """The grid of the paper's appendix. The paper does not say what it tried as penalties of EWC and MAS."""
    if strategy == "analytic":
        raise ConfigError("strategy analytic is not in the paper; choose from the default grid instead")
    values: dict[str, tuple[Any, ...]] = {
        "init_distribution": ("uniform", "normal"),
        "grad_clip": (10.0, 100.0),
        "lr": (1e-3, 5e-3),
        "momentum": (0.9, 0.95),
    }
    if encoder:
        values["encoder_lr"] = (1e-3, 5e-3)
    if strategy in _PENALTIES:
        values["penalty"] = _PENALTIES[strategy]
    return Grid(values)


@dataclass(frozen=True)
class Chosen:
    """What the validation sequence of an experiment came to."""

    experiment: ContinualExperiment
    """With the chosen settings, on the tasks that are left."""
    settings: dict[str, Any]
    """What was chosen, by name."""
    edges: tuple[str, ...]
    """Numbers among them that are the smallest or largest tried: a wider grid might have found better."""
    best_bias: float
    """The bias with the highest mH there, whether it was to be chosen or not."""

    def __str__(self) -> str:
        values = {name: f"{v:.3g}" if isinstance(v, float) else str(v) for name, v in self.settings.items()}
        marked = (f"{name} {value}{' (edge)' if name in self.edges else ''}" for name, value in values.items())
        return ", ".join(marked)


def validated(
    experiments: Sequence[ContinualExperiment],
    folder: Path,
    engine: Engine,
    *,
    score: Selection = "mAUC",
    validation_tasks: int = VALIDATION_TASKS,
    grid: Grid | None = None,
    progress: OnProgress | None = None,
) -> list[Chosen]:
    """The experiments with the settings that their own first tasks choose, on the tasks that are left.

    Each experiment has a search of its own. Ties go to the setting that comes first in the grid.
    """
    grids = [default_grid(experiment.strategy) if grid is None else grid for experiment in experiments]
    trials: list[list[ContinualExperiment]] = []
    for experiment, own in zip(experiments, grids, strict=True):
        n_tasks = TaskStream.make(experiment.dataset, experiment.tasks, experiment.seed).n_tasks
        if not 2 <= validation_tasks <= n_tasks - 2:
            raise ConfigError(
                f"{validation_tasks} validation tasks of {n_tasks}: at least 2 must choose and 2 be left to report"
            )
        start = replace(experiment, part=(0, validation_tasks))
        trials.append([_changed(start, point) for point in own.points()])
    best = _best(trials, folder, engine, score, progress)
    if any(own.refined for own in grids):
        for group, own, winner in zip(trials, grids, best, strict=True):
            for name in own.refined:
                value = getattr(winner.config, name)
                group += [_changed(winner, {name: float(f"{v:.3g}")}) for v in (value / _STEP, value * _STEP)]
        best = _best(trials, folder, engine, score, progress)
    return [
        _chosen(winner, group, own, score, Result.read(folder / winner.name).document["bias_curve"])
        for winner, group, own in zip(best, trials, grids, strict=True)
    ]


def _changed(experiment: ContinualExperiment, values: Mapping[str, Any]) -> ContinualExperiment:
    return replace(experiment, config=replace(experiment.config, **values))


def _best(
    trials: Sequence[Sequence[ContinualExperiment]],
    folder: Path,
    engine: Engine,
    score: Selection,
    progress: OnProgress | None,
) -> list[ContinualExperiment]:
    """The winner of each group; one that diverged does not take part."""
    failed = run_converging([trial for group in trials for trial in group], folder, engine, progress)
    best = []
    for group in trials:
        alive = [trial for trial in group if trial.name not in failed]
        if not alive:
            raise TrainingError(f"{group[0].strategy}: every trial failed: {failed[group[0].name].message}")
        scores = {trial.name: Result.read(folder / trial.name).document["scores"][score] for trial in alive}
        best.append(max(alive, key=lambda trial: scores[trial.name] or 0.0))
    return best


def _chosen(
    winner: ContinualExperiment,
    trials: Sequence[ContinualExperiment],
    grid: Grid,
    score: Selection,
    curve: Mapping[str, Sequence[float]],
) -> Chosen:
    """The winner's settings on the tasks that are left; `curve` holds what each bias gives on the first."""
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
