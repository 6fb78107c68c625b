"""Continual experiments: a stream, a strategy and a seed, and their run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from classnorm.continual import StreamConfig, StreamResult, TaskStream, run_stream
from classnorm.data import ZeroShotDataset
from classnorm.encoders import ImageInputs, load_encoder
from classnorm.errors import ConfigError, DataError
from classnorm.experiments.experiment import dataset_record, versions
from classnorm.files import cache_folder, digest, locked, make_folder, write_json
from classnorm.metrics import calibration_curves, continual_scores, side_scores
from classnorm.progress import OnProgress
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import RESULT, Result, result_file
from classnorm.training import Device, pick_device

__all__ = ["BIASES", "ContinualExperiment", "ImageMode", "run_continual"]

BIASES = np.linspace(-0.1, 0.3, 81)
"""Of the seen cosines: those whose scores every run records."""
_FROM_NOTHING = {"lr": 0.02, "encoder_lr": 0.1, "batch_size": 16, "grad_clip": 1.0, "epochs": 8}
"""By the first 2 of 5 tasks of glyphs-light. Without clipping, rates this high kill the network at once."""


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
    chosen: dict[str, Any] | None = None
    """How a validation sequence chose settings: `by`, a score, and `settings`, their names. None: it chose none."""
    marker = RESULT

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
) -> Result:
    """Learn the stream into a folder.

    With `resume` a finished run of the same experiment is read instead, and an interrupted one continues after its last
    finished task.
    """
    make_folder(folder)
    with locked(folder):
        if resume and result_file(folder).is_file():
            return _read(experiment, folder)
        where = pick_device(device)
        encoder, inputs = (
            experiment.images.load(experiment.dataset, experiment.seed, where) if experiment.images else (None, None)
        )
        outcome = run_stream(
            experiment.stream,
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
        document = _document(experiment, outcome) | {
            "image_size": inputs.pixels.shape[1] if inputs else None,
            "device": str(where),
            "threads": torch.get_num_threads(),
            "versions": versions(),
            "command": command,
        }
        write_json(folder / RESULT, document)
        for file in folder.glob("logits-*.npy"):
            file.unlink()  # the scores are what is kept
        return Result(folder, document)


def _read(experiment: ContinualExperiment, folder: Path) -> Result:
    """The finished run; one of version 0.1 gets the file name that the engine looks for."""
    result = Result.read(folder)
    if result.document.get("key") != experiment.name:
        raise ConfigError(f"{folder}: holds a finished run with other settings; choose another folder")
    if result_file(folder).name != RESULT:
        write_json(folder / RESULT, result.document)
    return result


def _document(experiment: ContinualExperiment, outcome: StreamResult) -> dict[str, Any]:
    """What a result says of the experiment and its scores."""
    stream = experiment.stream
    scores = continual_scores(outcome.history, stream.test_labels, stream.tasks)
    return {
        "kind": "stream",
        "key": experiment.name,
        "dataset": dataset_record(experiment.dataset),
        "stream": {
            "tasks": [len(task) for task in stream.tasks],
            "checksum": stream.checksum,
            "image_split": stream.split,
            "part": list(experiment.part),
        },
        "encoder": experiment.images.encoder if experiment.images else None,
        "strategy": experiment.strategy,
        "config": experiment.config.as_dict(),
        "chosen": experiment.chosen,
        "seed": experiment.seed,
        "average": "class",
        "scores": {name: json_number(value) for name, value in scores.summary().items()},
        "per_task": [{name: json_number(value) for name, value in step.items()} for step in scores.per_task],
        "bias_curve": _bias_curve(stream, outcome, experiment.config.bias),
        "matrix": [[json_number(value) for value in row] for row in scores.matrix.tolist()],
        "train_seconds": round(outcome.train_seconds, 3),
    }


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
