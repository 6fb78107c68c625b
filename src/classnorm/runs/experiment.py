"""Experiments (dataset, method, recipe, seed) and their runs: fit, calibrate, score the test set once, save."""

from __future__ import annotations

import platform
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.io.files import digest, locked_folder, write_json
from classnorm.methods import FitContext, FitJob, MethodConfig, check_parallel, method_named
from classnorm.metrics import GZSLScores, SideScores, side_gzsl_scores, side_predictions
from classnorm.progress import Announce
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import CHECKPOINT, ENCODER, RESULT, Result, new_run, write_arrays, write_result
from classnorm.training import ALONE, Device, Processes, pick_device

if TYPE_CHECKING:
    from classnorm.scoring import CalibratedFit, Scorer


@dataclass(frozen=True)
class Experiment:
    """One run of a method. Equal experiments give equal results."""

    dataset: ZeroShotDataset
    method: str
    recipe: str
    config: MethodConfig
    seed: int = 0
    marker = RESULT

    @cached_property
    def job(self) -> FitJob:
        return FitJob(self.dataset, method_named(self.method), self.config, self.seed)

    @cached_property
    def key(self) -> str:
        """Identifies everything that determines the result, which the name of the recipe does not."""
        return digest([self.dataset.checksum, self.method, self.config.as_dict(), self.seed])

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.key[:16]

    def run(self, folder: Path) -> None:
        """Run as a task of the engine."""
        run(self, folder, resume=True, checkpoint_every=10)


def run(
    experiment: Experiment,
    folder: Path,
    *,
    device: Device = "auto",
    processes: Processes = ALONE,
    checkpoint_every: int = 0,
    resume: bool = False,
    announce: Announce = lambda stage: None,
    command: str = "",
    label: str = "",
) -> Result:
    """Run an experiment and write the result to a folder.

    With `resume`, a finished run of the same experiment is read instead, and an interrupted one continues from its last
    checkpoint. Otherwise a run in the folder is replaced when the new one is complete: one that fails leaves it as it
    is. Waits for another process that runs in the same folder.
    Of `processes` that run an experiment together, only the first writes. Reports show the `label`.
    """
    with locked_folder(folder) if processes.is_first else nullcontext():
        if processes.from_first(resume and _is_finished(experiment, folder)):
            if processes.is_first:
                shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)  # of a process killed at the very end
            return Result.read(folder)
        experiment.config.check()
        check_parallel(experiment.method, processes.count)
        checkpoint = folder / CHECKPOINT / "training.safetensors"
        context = FitContext(pick_device(device), None, checkpoint, checkpoint_every, resume, processes=processes)
        from classnorm.scoring import fit_calibrated  # PyTorch

        fitted = fit_calibrated(experiment.job, context, announce)
        sides, scores = score(fitted.scorer, experiment.dataset, processes)
        document = _document(experiment, fitted, scores) | {
            "device": str(context.device),
            "processes": processes.count,
            "command": command,
            **({"label": label} if label else {}),
        }
        if processes.is_first:
            with new_run(folder) as new:
                fitted.scorer.save(new)
                _write_encoder(new, experiment.dataset)
                _write_predictions(new, fitted.scorer, experiment.dataset, sides)
                write_result(new, document, fitted.history)
            shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
        processes.from_first()  # the others wait until it is written
        return Result(folder, document)


def _is_finished(experiment: Experiment, folder: Path) -> bool:
    """Whether the folder holds the result of the experiment; raises if that of another, with nothing to resume."""
    if not (folder / RESULT).exists():
        return False
    result = Result.read(folder)
    if result.document.get("key") != experiment.key:
        if (folder / CHECKPOINT).is_dir():
            return False  # the experiment was to replace that run
        old, new = result.document.get("config", {}), experiment.config.as_dict()
        settings = [f"{name} {old.get(name)} instead of {new[name]}" for name in new if old.get(name) != new[name]]
        difference = ", ".join(settings[:3]) or "other data, method or seed"
        raise ConfigError(f"{folder}: holds a finished run with {difference}; choose another `out`")
    return True


def _document(experiment: Experiment, fitted: CalibratedFit, scores: GZSLScores) -> dict[str, Any]:
    import torch

    return {
        "key": experiment.key,
        "dataset": dataset_record(experiment.dataset),
        "method": experiment.method,
        "recipe": experiment.recipe,
        "config": experiment.config.as_dict(),
        "seed": experiment.seed,
        "scores": {name: json_number(scores[name]) for name in scores},
        "average": "class",
        "calibration": str(fitted.scorer.calibration),
        "validation": fitted.validation,
        **({"choices": choices} if (choices := fitted.scorer.model.choices()) else {}),
        "training_accuracy": round(fitted.training_accuracy, 2),
        "notices": list(fitted.notices),
        "train_seconds": round(fitted.train_seconds, 3),
        "cpu_seconds": round(fitted.cpu_seconds, 3),
        "fit_seconds": round(fitted.fit_seconds, 3),
        "parameters": sum(p.numel() for p in fitted.scorer.model.parameters()),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write_encoder(folder: Path, dataset: ZeroShotDataset) -> None:
    """Write the encoder of the features, if the dataset names it, so that the model can classify images."""
    if dataset.encoder_record is not None:
        write_json(folder / ENCODER, dataset.encoder_record)


def score(scorer: Scorer, dataset: ZeroShotDataset, processes: Processes = ALONE) -> tuple[SideScores, GZSLScores]:
    """Uncalibrated side scores of the test rows, and the scores under the scorer's calibration."""
    from classnorm.scoring.calibrated import of_all

    rows = dataset.test_rows
    own = rows[processes.part(len(rows))]
    sides = of_all(scorer.sides(dataset.view(own), dataset.labels[own]), processes)
    return sides, side_gzsl_scores(sides, scorer.calibration)


def dataset_record(dataset: ZeroShotDataset) -> dict[str, Any]:
    """The dataset's entry in a result."""
    return {
        "name": dataset.name,
        "checksum": dataset.checksum,
        "split_version": dataset.provenance.get("split", "own"),
        "split_checksum": dataset.split.checksum,
        "sizes": dataset.sizes,
        "provenance": dataset.provenance,
    }


def versions() -> dict[str, str]:
    """Versions of the packages that can change a result."""
    packages = ("classnorm", "torch", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _write_predictions(folder: Path, scorer: Scorer, dataset: ZeroShotDataset, sides: SideScores) -> None:
    rows, seen = dataset.test_rows, scorer.seen
    write_arrays(
        folder / "predictions.npz",
        {
            "row": rows,
            "label": sides.labels.astype(np.int32),
            "top1": side_predictions(sides, scorer.calibration).astype(np.int32),
            "best_seen": sides.seen_class.astype(np.int32),
            "best_unseen": sides.unseen_class.astype(np.int32),
            "best_seen_score": sides.best_seen.astype(np.float32),
            "best_unseen_score": sides.best_unseen.astype(np.float32),
            "seen": seen,
            "class_names": np.array(dataset.class_names),
        },
    )
    if dataset.images is not None:
        picks = dataset.example_positions()
        write_arrays(folder / "examples.npz", {"position": picks, "image": np.asarray(dataset.images[rows[picks]])})
