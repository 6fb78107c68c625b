"""Continual experiments (stream, strategy, seed) and their runs."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from classnorm.continual import StreamConfig, TaskStream
from classnorm.continual.stream import PLAIN, StreamOptions
from classnorm.data import ZeroShotDataset
from classnorm.data.images import files_below
from classnorm.encoders import load_encoder
from classnorm.errors import DataError
from classnorm.io.files import cache_folder, make_folder
from classnorm.metrics import best_seen_and_unseen, calibration_curves, continual_scores
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import STATE, key_of
from classnorm.runs.job import Execution, Job, Outcome
from classnorm.training import pick_device

if TYPE_CHECKING:
    import torch
    from torch import nn

    from classnorm.continual import StreamResult
    from classnorm.preparation import BlockOutputs, ImageInputs

BIASES = np.linspace(-0.1, 0.3, 81)
"""Biases of the seen cosines for which every run records scores."""
_FROM_SCRATCH = {"lr": 0.02, "encoder_lr": 0.1, "batch_size": 16, "grad_clip": 1.0, "epochs": 8}
"""Chosen on the first 2 of 5 tasks of glyphs-light. Rates this high need clipping, or training diverges at once."""


@dataclass(frozen=True)
class ImageMode:
    """Learn from images with an encoder that is fine-tuned, instead of from features."""

    encoder: str
    size: int | None = None
    """Side of the images in pixels; None is the encoder's default."""
    folder: Path | None = None
    """Folder of the dataset's image files; not needed if the dataset contains its images."""
    weights: Path | None = None
    """File of the encoder's weights, instead of its own."""
    freeze_blocks: int = 0
    """Number of early blocks of the encoder that are not trained; their outputs are computed once."""

    def load(
        self, dataset: ZeroShotDataset, seed: int, device: torch.device
    ) -> tuple[nn.Module, ImageInputs | BlockOutputs]:
        """The part of the encoder that is trained, initialized by the seed if not pretrained, and its inputs: decoded
        images, or the outputs of the frozen blocks."""
        if dataset.images is None and (self.folder is None or dataset.image_files is None):
            raise DataError(f"{dataset.name}: has no images; name the folder of its image files with `images=DIR`")
        import torch

        from classnorm.preparation import BlockOutputs, ImageInputs

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = load_encoder(self.encoder, self.size, self.weights)
        encoder.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.folder is not None and dataset.image_files is not None:
            files = files_below(self.folder, dataset.image_files)
            images = ImageInputs(files, encoder.preprocessing, device=device, cache=cache_folder())
        else:
            assert dataset.images is not None
            images = ImageInputs(dataset.images, encoder.preprocessing, device=device)
        if not self.freeze_blocks:
            return encoder.module, images
        return BlockOutputs.of(images, encoder, self.freeze_blocks, cache_folder())

    @property
    def settings(self) -> dict[str, Any]:
        """Settings for an encoder trained from scratch; the defaults suit pretrained ones."""
        return dict(_FROM_SCRATCH) if self.encoder.startswith("convnet") else {}

    def key(self) -> list[Any]:
        parts: list[Any] = [self.encoder, self.size]
        if self.weights is not None:
            parts.append(_checksum(self.weights))
        return [*parts, self.freeze_blocks] if self.freeze_blocks else parts


def _checksum(weights: Path) -> str:
    """SHA-256 of a file of weights, or of all files of a folder, such as the shards beside a `model.json`."""
    folder = weights.parent if weights.suffix == ".json" else weights
    checksum = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else [weights]:
        with file.open("rb") as content:
            checksum.update(hashlib.file_digest(content, "sha256").digest())
    return checksum.hexdigest()


@dataclass(frozen=True)
class ContinualExperiment(Job):
    """A strategy on a part of a stream. Equal experiments give equal results."""

    dataset: ZeroShotDataset
    strategy: str
    config: StreamConfig
    seed: int = 0
    """Determines the order of classes, the initial weights and the batches."""
    tasks: int | tuple[int, ...] | None = None
    part: tuple[int, int | None] = (0, None)
    arrivals: StreamOptions = PLAIN
    images: ImageMode | None = None
    """None learns from the dataset's features."""
    chosen: dict[str, Any] | None = None
    """`settings`: names of the settings that validation tasks chose, and `by`: the score they were chosen by."""

    @cached_property
    def stream(self) -> TaskStream:
        return TaskStream.make(self.dataset, self.tasks, self.seed, arrivals=self.arrivals).part(*self.part)

    @cached_property
    def key(self) -> str:
        """Identifies everything that determines the result."""
        facts = [self.dataset.checksum, self.stream.checksum, self.strategy, self.config.as_dict(), self.seed]
        facts += self.images.key() if self.images else []
        return key_of(facts, f"strategy {self.strategy}", "stream scores")[:16]

    def compute(self, checkpoint: Path, execution: Execution) -> Outcome:
        from classnorm.continual import run_stream  # PyTorch

        device = pick_device(execution.device)
        mode = self.images
        encoder, inputs = mode.load(self.dataset, self.seed, device) if mode else (None, None)
        found = run_stream(
            self.stream,
            self.strategy,
            self.config,
            self.seed,
            device=device,
            folder=make_folder(checkpoint),
            resume=execution.resume,
            encoder=encoder,
            inputs=inputs,
        )
        document = self._document(found) | {
            "image_size": inputs.size if inputs else None,
            "freeze_blocks": mode.freeze_blocks if mode else 0,
            "device": str(device),
        }
        return Outcome(document, lambda folder: shutil.copyfile(checkpoint / STATE, folder / STATE))

    def _document(self, found: StreamResult) -> dict[str, Any]:
        stream = self.stream
        scores = continual_scores(found.history, stream.test_labels, stream.tasks)
        return {
            "kind": "stream",
            "stream": {
                "tasks": [len(task) for task in stream.tasks],
                "checksum": stream.checksum,
                "image_split": stream.split,
                "part": list(self.part),
                "arrivals": stream.arrivals.changed(),
            },
            "encoder": self.images.encoder if self.images else None,
            "strategy": self.strategy,
            "config": asdict(self.config),
            "chosen": self.chosen,
            "scores": {name: json_number(value) for name, value in scores.summary().items()},
            "per_task": [{name: json_number(value) for name, value in step.items()} for step in scores.per_task],
            **_bias_curves(stream, found, self.config.bias),
            "matrix": [[json_number(value) for value in row] for row in scores.matrix.tolist()],
            "train_seconds": round(found.train_seconds, 3),
            "stored_bytes": found.stored_bytes,
            "rows_passed": found.rows,
        }


def _bias_curves(stream: TaskStream, result: StreamResult, bias: float) -> dict[str, Any]:
    """`bias_curve`: mUA, mH, and mSA without the last step, which has no unseen classes, at each bias of the seen
    cosines. On validation tasks it chooses the bias; elsewhere it only shows the effect of other values.

    `oracle_mH`: mH with the best bias of each step, chosen on the test rows, an upper bound for any choice.
    """
    steps = list(enumerate(result.history))[1:-1]  # step 0 is before the first task
    best_scores = [best_seen_and_unseen(logits, stream.test_labels, stream.seen(step)) for step, logits in steps]
    if not best_scores:
        return {"bias_curve": {}, "oracle_mH": None}
    shifts = result.learner.scale * (BIASES - bias)
    curve = calibration_curves(best_scores, "bias", shifts).rounded() | {"value": np.round(BIASES, 4).tolist()}
    best = [float(calibration_curves([side], "bias", shifts).harmonic.max()) for side in best_scores]
    return {"bias_curve": curve, "oracle_mH": json_number(float(np.mean(best)))}
