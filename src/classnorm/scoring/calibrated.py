"""Fits with a calibration chosen on validation splits."""

from __future__ import annotations

import importlib
import math
import time
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.methods.method import VALIDATED, FitJob
from classnorm.metrics import (
    Calibration,
    SideScores,
    choose_calibration,
    expected_calibration_error,
    fit_temperature,
    side_scores,
    softmax,
)
from classnorm.metrics.calibration import calibration_curves, calibration_values
from classnorm.progress import Announce
from classnorm.results.numbers import json_numbers
from classnorm.scoring.novelty import Rejection, ScoredSplit, choose_rejection
from classnorm.scoring.scorer import Scorer
from classnorm.training import FitContext, History, Processes, SharedWork, TrainingConfig

__all__ = ["CalibratedFit", "ValidationFit", "fit_calibrated", "of_all", "validate"]

_SHARING = 3  # validation splits up to which work is shared; each doubles the results to keep
_KINDS: tuple[Literal["scale", "bias"], ...] = ("scale", "bias")
_MAX_LOGITS = 1 << 20  # validation logits kept to fit the temperature: some of the rows are enough for one number


@dataclass(frozen=True)
class CalibratedFit:
    """A calibrated scorer and the record of its fit."""

    scorer: Scorer
    history: History
    train_seconds: float
    """The final fit only."""
    fit_seconds: float
    """Including validation fits and calibration."""
    validation: dict[str, Any] | None = None
    """The choice on validation splits and its scores there; None without validation."""
    cpu_seconds: float = 0.0
    """Of the final fit, summed over threads: unlike other times, hardly affected by what else the machine does."""


def fit_calibrated(job: FitJob, context: FitContext, announce: Announce = lambda stage: None) -> CalibratedFit:
    """Choose the calibration on validation splits if the config says so, then fit on all training rows.

    The validation fits also determine the temperature of the probabilities, which is 1 without them.

    Args:
        announce: called with the name of each stage before it starts; returns its progress callback.
    """
    job.config.check()
    if isinstance(job.config, TrainingConfig):
        # The first optimizer of a process makes PyTorch import its compiler: keep that second or two out of the timing.
        importlib.import_module("torch._dynamo")
    started = time.perf_counter()
    context = replace(context, shared=_shared_work(job))
    chosen, validation = _calibrate(job, context, announce)
    progress = announce("training")
    before, cpu = time.perf_counter(), time.process_time()
    fitted = job.fit(replace(context, progress=progress))
    now, cpu_seconds = time.perf_counter(), time.process_time() - cpu
    scorer = replace(Scorer.of(job, fitted.model), **vars(chosen))
    return CalibratedFit(scorer, fitted.history, now - before, now - started, validation, cpu_seconds)


def _shared_work(job: FitJob) -> SharedWork | None:
    """Rows that train the same fits are in the same cell: its number has bit s if they train validation split s."""
    config = job.config
    if config.calibration not in VALIDATED or config.validation_splits > _SHARING:
        return None
    cells = np.zeros(job.dataset.n_rows, dtype=np.int64)
    for split in range(config.validation_splits):
        cells[job.validation(split).dataset.split.train] |= 1 << split
    return SharedWork(cells)


@dataclass(frozen=True)
class _Chosen:
    """What validation decides about a scorer."""

    calibration: Calibration
    temperature: float = 1.0
    rejection: Rejection | None = None


def _calibrate(job: FitJob, context: FitContext, announce: Announce) -> tuple[_Chosen, dict[str, Any] | None]:
    config = job.config
    if config.calibration not in VALIDATED:
        return _Chosen(Calibration.parse(config.calibration)), None
    fits = []
    for split in range(config.validation_splits):
        progress = announce(f"validation {split + 1}/{config.validation_splits}")
        checkpoint = context.checkpoint and context.checkpoint.with_name(f"validation-{split}.safetensors")
        fits.append(validate(job, split, replace(context, progress=progress, checkpoint=checkpoint)))
    sides = [fit.sides for fit in fits]
    calibration, harmonic = choose_calibration(sides, VALIDATED[config.calibration])
    splits = [ScoredSplit(calibration.apply(fit.logits, fit.seen), fit.labels, fit.seen) for fit in fits]
    scores = np.concatenate([split.scores for split in splits])
    labels = np.concatenate([fit.labels for fit in fits])
    temperature = 1.0 if math.isnan(harmonic) else fit_temperature(scores, labels)  # NaN: one side has no rows
    rejection, novelty = choose_rejection(splits, temperature)
    record = {
        "harmonic": harmonic,
        "splits": config.validation_splits,
        "kind": config.validation,
        "temperature": temperature,
        "ece": {
            "before": expected_calibration_error(softmax(scores), labels),
            "after": expected_calibration_error(softmax(scores, temperature), labels),
        },
        "novelty": novelty,
        "curves": {
            kind: calibration_curves(sides, kind, calibration_values(sides, kind, calibration)).rounded()
            for kind in _KINDS
        },
    }
    return _Chosen(calibration, temperature, rejection), json_numbers(record)


@dataclass(frozen=True)
class ValidationFit:
    """The scores of a validation fit. All splits have the same classes, the seen ones, but hold out different ones."""

    sides: SideScores
    logits: npt.NDArray[np.float32]  # [n, n_classes] of at least some held-out rows
    labels: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]


def validate(job: FitJob, split: int, context: FitContext) -> ValidationFit:
    """Fit on a validation split of the training rows and score the held-out rows."""
    part = job.validation(split)
    data = part.dataset
    scorer, labels = Scorer.of(part, part.fit(context).model), data.labels[data.test_rows]
    step = max(1, -(-len(labels) * data.n_classes // _MAX_LOGITS))
    own = context.processes.part(len(labels))
    none = np.empty((0, data.n_classes), dtype=np.float32)
    sides, kept = [side_scores(none, labels[:0], data.seen)], [none]
    for rows, logits in scorer.logit_blocks(data.view(data.test_rows[own])):
        sides.append(side_scores(logits, labels[own][rows], data.seen))
        kept.append(logits[-(own.start + rows.start) % step :: step].copy())
    together = of_all(SideScores.joined(sides), context.processes)
    some = context.processes.concatenated(np.concatenate(kept))
    return ValidationFit(together, some, labels[::step], data.seen)


def of_all(sides: SideScores, processes: Processes) -> SideScores:
    """The scores of the rows of all processes, each of which has those of its part."""
    columns = [field.name for field in fields(SideScores) if field.name != "average"]
    return SideScores(**{name: processes.concatenated(getattr(sides, name)) for name in columns}, average=sides.average)
