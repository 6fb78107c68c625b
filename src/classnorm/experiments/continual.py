"""Continual experiments: a stream, a strategy, and the validation sequence that chooses its settings.

The first tasks of a stream choose settings and are then discarded, with their classes; a fresh model learns the other
tasks, and only those are reported.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from classnorm.continual import ContinualConfig, StreamProgress, TaskStream, run_stream
from classnorm.data import ZeroShotDataset
from classnorm.encoders import ImageInputs, load_encoder
from classnorm.errors import ConfigError, DataError, TrainingError
from classnorm.experiments.engine import Engine, Progress, run_tasks
from classnorm.experiments.run import dataset_record, versions
from classnorm.files import cache_folder, locked, make_folder, write_json
from classnorm.metrics import continual_scores
from classnorm.training import Device, pick_device

__all__ = [
    "MARKER",
    "SCORES",
    "VALIDATION_TASKS",
    "ContinualExperiment",
    "ImageMode",
    "Selection",
    "default_grid",
    "read_scores",
    "run_continual",
    "validated",
]

Selection = Literal["mAUC", "mH", "mJA"]
SCORES = ("mSA", "mUA", "mH", "mAUC", "mJA", "forgetting")
VALIDATION_TASKS = 3
MARKER = "continual.json"
_RATES = (1e-3, 5e-3, 2e-2, 0.1, 0.5)
"""Learning rates of the embedder: the paper's two, and larger ones, which models without CN need on features."""


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

    def key(self) -> list[Any]:
        return [self.encoder, self.size]


@dataclass(frozen=True)
class ContinualExperiment:
    """A strategy on a part of a stream. Two equal ones give equal results."""

    dataset: ZeroShotDataset
    strategy: str
    config: ContinualConfig
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
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]

    def run(self, folder: Path) -> None:
        """As a task of the engine."""
        run_continual(self, folder, resume=True)


def run_continual(
    experiment: ContinualExperiment,
    folder: Path,
    *,
    device: Device = "auto",
    resume: bool = False,
    progress: StreamProgress | None = None,
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
            "scores": {name: _number(value) for name, value in scores.summary().items()},
            "per_task": [{name: _number(value) for name, value in step.items()} for step in scores.per_task],
            "matrix": [[_number(value) for value in row] for row in scores.matrix.tolist()],
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


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else round(value, 4)


def read_scores(folder: Path) -> dict[str, Any]:
    """What a finished run wrote."""
    try:
        document: dict[str, Any] = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        document["scores"], document["per_task"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / MARKER}: not a readable result; run it again") from error
    return document


def default_grid(strategy: str) -> dict[str, tuple[Any, ...]]:
    """What the validation sequence tries."""
    grid: dict[str, tuple[Any, ...]] = {"lr": _RATES}
    if strategy == "ewc":
        grid["penalty"] = (1.0, 10.0, 100.0)
    elif strategy == "mas":
        grid["penalty"] = (1e-4, 1e-2, 1.0)
    return grid


def validated(
    experiments: Sequence[ContinualExperiment],
    folder: Path,
    engine: Engine,
    *,
    score: Selection = "mAUC",
    validation_tasks: int = VALIDATION_TASKS,
    grid: Mapping[str, Sequence[Any]] | None = None,
    progress: Progress | None = None,
) -> list[ContinualExperiment]:
    """The experiments with the settings that their own first tasks choose, on the tasks that are left.

    Each experiment has a search of its own. Ties go to the setting that comes first in the grid.
    """
    trials: list[list[ContinualExperiment]] = []
    for experiment in experiments:
        n_tasks = TaskStream.make(experiment.dataset, experiment.tasks, experiment.seed).n_tasks
        if not 2 <= validation_tasks <= n_tasks - 2:
            raise ConfigError(
                f"{validation_tasks} validation tasks of {n_tasks}: at least 2 must choose and 2 be left to report"
            )
        values = default_grid(experiment.strategy) if grid is None else grid
        points = [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]
        first = (0, validation_tasks)
        trials.append([replace(experiment, config=replace(experiment.config, **point), part=first) for point in points])
    failed = run_tasks([trial for group in trials for trial in group], folder, engine, progress)
    chosen = []
    for experiment, group in zip(experiments, trials, strict=True):
        alive = [trial for trial in group if trial.name not in failed]
        if not alive:
            raise TrainingError(f"{experiment.strategy}: every trial failed: {failed[group[0].name]}")
        found = {trial.name: read_scores(folder / trial.name)["scores"][score] for trial in alive}
        best = max(alive, key=lambda trial: found[trial.name] or 0.0)
        chosen.append(replace(experiment, config=best.config, part=(validation_tasks, None)))
    return chosen
