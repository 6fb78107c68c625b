"""Continual experiments: a stream, a strategy, and the validation sequence that chooses its settings.

The first tasks of a stream choose settings and are then discarded, with their classes; a fresh model learns the other
tasks, and only those are reported.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from classnorm.continual import StreamConfig, StreamResult, TaskStream, run_stream
from classnorm.data import ZeroShotDataset
from classnorm.encoders import ImageInputs, load_encoder
from classnorm.errors import ConfigError, DataError, TrainingError
from classnorm.experiments.engine import Engine, run_converging
from classnorm.experiments.experiment import dataset_record, versions
from classnorm.files import cache_folder, digest, locked, make_folder, write_json
from classnorm.metrics import calibration_curves, continual_scores, side_scores
from classnorm.progress import OnProgress
from classnorm.results.numbers import json_number
from classnorm.training import Device, pick_device

__all__ = [
    "BIASES",
    "MARKER",
    "SCORES",
    "VALIDATION_TASKS",
    "Chosen",
    "ContinualExperiment",
    "Grid",
    "GridName",
    "ImageMode",
    "Selection",
    "default_grid",
    "paper_grid",
    "read_scores",
    "run_continual",
    "validated",
]

Selection = Literal["mAUC", "mH", "mJA"]
GridName = Literal["default", "paper"]
SCORES = ("mSA", "mUA", "mH", "mAUC", "mJA", "forgetting")
VALIDATION_TASKS = 3
MARKER = "continual.json"
BIASES = np.linspace(-0.1, 0.3, 81)
"""Of the seen cosines: those whose scores every run records."""
_RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
"""Learning rates of the embedder: the paper's, and those that models with and without CN need on features."""
_STEP = 10**0.5  # between rates in the second round
_FROM_NOTHING = {"lr": 0.02, "encoder_lr": 0.1, "batch_size": 16, "grad_clip": 1.0, "epochs": 8}
"""By the first 2 of 5 tasks of glyphs-light. Without clipping, rates this high kill the network at once."""
_PENALTIES = {"ewc": (1.0, 10.0, 100.0), "mas": (1e-4, 1e-2, 1.0)}


@dataclass(frozen=True)
class ImageMode:
    """Learn from images, with an encoder that is trained along, instead of from features."""

    encoder: str
    size: int | None = None
    """Side of the pictures in pixels; None is what the encoder was made for."""
    folder: Path | None = None
    """Where the dataset's image files lie; not needed where the dataset holds its images."""

    def load(self, dataset: ZeroShotDataset, seed: int, device: torch.device) -> tuple[nn.Module, ImageInputs]:
        """The encoder's network, drawn by the seed if it is not pretrained, and the pictures, decoded once."""
        if dataset.images is None and (self.folder is None or dataset.image_files is None):
            raise DataError(f"{dataset.name}: has no images; say where its image files lie with --images DIR")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = load_encoder(self.encoder, self.size)
        if self.folder is not None and dataset.image_files is not None:
            files = [self.folder / file for file in dataset.image_files]
            return encoder.module, ImageInputs(files, encoder.preprocessing, device=device, cache=cache_folder())
        assert dataset.images is not None
        return encoder.module, ImageInputs(dataset.images, encoder.preprocessing, device=device)

    @property
    def settings(self) -> dict[str, Any]:
        """What an encoder that starts from nothing needs, instead of the defaults, which suit pretrained ones."""
        return dict(_FROM_NOTHING) if self.encoder.startswith("convnet") else {}

    def key(self) -> list[Any]:
        return [self.encoder, self.size]


@dataclass(frozen=True)
class ContinualExperiment:
    """A strategy on a part of a stream. Two equal ones give equal results."""

    dataset: ZeroShotDataset
    strategy: str
    config: StreamConfig
    seed: int = 0
    """Of the order of classes, the initial weights and the batches."""
    tasks: int | tuple[int, ...] | None = None
    part: tuple[int, int | None] = (0, None)
    images: ImageMode | None = None
    """None learns from the dataset's features."""
    marker = MARKER

    @cached_property
    def stream(self) -> TaskStream:
        return TaskStream.make(self.dataset, self.tasks, self.seed).part(*self.part)

    @cached_property
    def name(self) -> str:
        """Its folder in a batch; names everything that decides the result."""
        document = [self.dataset.checksum, self.stream.checksum, self.strategy, self.config.as_dict(), self.seed]
        document += self.images.key() if self.images else []
        return digest(document)[:16]

    def run(self, folder: Path) -> None:
        """As a task of the engine."""
        run_continual(self, folder, resume=True)


def run_continual(
    experiment: ContinualExperiment,
    folder: Path,
    *,
    device: Device = "auto",
    resume: bool = False,
    progress: OnProgress | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Learn the stream into a folder; what was interrupted goes on after its last finished task."""
    make_folder(folder)
    with locked(folder):
        if resume and (folder / MARKER).is_file():
            document = read_scores(folder)
            if document.get("key") != experiment.name:
                raise ConfigError(f"{folder}: holds a finished run with other settings; choose another --out")
            return document
        stream = experiment.stream
        where = pick_device(device)
        encoder, inputs = (
            experiment.images.load(experiment.dataset, experiment.seed, where) if experiment.images else (None, None)
        )
        result = run_stream(
            stream,
            experiment.strategy,
            experiment.config,
            experiment.seed,
            where,
            folder,
            resume,
            progress,
            encoder,
            inputs,
        )
        scores = continual_scores(result.history, stream.test_labels, stream.tasks)
        document = {
            "key": experiment.name,
            "dataset": dataset_record(experiment.dataset),
            "stream": {
                "tasks": [len(task) for task in stream.tasks],
                "checksum": stream.checksum,
                "image_split": stream.split,
                "part": list(experiment.part),
            },
            "encoder": experiment.images.encoder if experiment.images else None,
            "image_size": inputs.pixels.shape[1] if inputs else None,
            "strategy": experiment.strategy,
            "config": experiment.config.as_dict(),
            "seed": experiment.seed,
            "average": "class",
            "scores": {name: json_number(value) for name, value in scores.summary().items()},
            "per_task": [{name: json_number(value) for name, value in step.items()} for step in scores.per_task],
            "bias_curve": _bias_curve(stream, result, experiment.config.bias),
            "matrix": [[json_number(value) for value in row] for row in scores.matrix.tolist()],
            "train_seconds": round(result.train_seconds, 3),
            "device": str(where),
            "threads": torch.get_num_threads(),
            "versions": versions(),
            "command": command,
        }
        write_json(folder / MARKER, document)
        for file in folder.glob("logits-*.npy"):
            file.unlink()  # the scores are what is kept
        return document


def _bias_curve(stream: TaskStream, result: StreamResult, bias: float) -> dict[str, list[float]]:
    """What each bias of the seen cosines would give: mUA, mH, and mSA without the last step, which has nothing unseen.

    On the validation tasks it chooses the bias; elsewhere it only shows what another one would have done.
    """
    task = np.empty(stream.n_classes, dtype=np.int64)
    for number, classes in enumerate(stream.tasks):
        task[classes] = number
    steps = enumerate(result.history[1:-1])  # the first is before any task
    sides = [side_scores(logits, stream.test_labels, task <= t) for t, logits in steps]
    if not sides:
        return {}
    shifts = result.learner.scale * (BIASES - bias)
    return calibration_curves(sides, "bias", shifts).rounded() | {"value": np.round(BIASES, 4).tolist()}


def read_scores(folder: Path) -> dict[str, Any]:
    """What a finished run wrote."""
    try:
        document: dict[str, Any] = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        document["scores"], document["per_task"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / MARKER}: not a readable result; run it again") from error
    return document


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
        raise ConfigError("strategy analytic is not in the paper; leave out --select-grid paper")
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
        _chosen(experiment, own, group, winner, read_scores(folder / winner.name)["bias_curve"], validation_tasks)
        for experiment, own, group, winner in zip(experiments, grids, trials, best, strict=True)
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
        found = {trial.name: read_scores(folder / trial.name)["scores"][score] for trial in alive}
        best.append(max(alive, key=lambda trial: found[trial.name] or 0.0))
    return best


def _chosen(
    experiment: ContinualExperiment,
    grid: Grid,
    trials: Sequence[ContinualExperiment],
    winner: ContinualExperiment,
    curve: Mapping[str, Sequence[float]],
    validation_tasks: int,
) -> Chosen:
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
    return Chosen(replace(experiment, config=config, part=(validation_tasks, None)), settings, tuple(edges), bias)
