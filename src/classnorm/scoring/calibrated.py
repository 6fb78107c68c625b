"""Fit and calibrate: the only place that runs validation fits for a calibration."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from classnorm.scoring.scorer import Scorer
from classnorm.training import FitContext, History, SharedWork, TrainingConfig

__all__ = ["CalibratedFit", "ValidationFit", "fit_calibrated", "validate"]

_SHARING = 3  # validation splits up to which work is shared; each doubles the results to keep
_KEPT = 1 << 20  # validation scores kept to fit the temperature, one number, for which some of the rows are enough


@dataclass(frozen=True)
class CalibratedFit:
    """A scorer ready for use, and how it came to be."""

    scorer: Scorer
    history: History
    train_seconds: float
    """The final fit alone."""
    fit_seconds: float
    """With validation fits and calibration."""
    validation: dict[str, Any] | None = field(default=None)
    """What validation chose and how well it did there; None where nothing was validated."""


def fit_calibrated(job: FitJob, context: FitContext, announce: Announce = lambda stage: None) -> CalibratedFit:
    """Choose a calibration on validation splits if the config asks for one, then fit on all training rows.

    The same validation fits give the temperature of the probabilities; without them it is 1.

    Args:
        announce: told the name of each stage before it starts; returns a progress callback for it.
    """
    job.config.check()
    if isinstance(job.config, TrainingConfig):
        # PyTorch imports its compiler with the first optimizer, for a second or two: once a process, part of no fit.
        importlib.import_module("torch._dynamo")
    started = time.perf_counter()
    context = replace(context, shared=_shared_work(job))
    calibration, temperature, validation = _calibrate(job, context, announce)
    progress = announce("training")
    before = time.perf_counter()
    fitted = job.fit(replace(context, progress=progress))
    train_seconds = time.perf_counter() - before
    scorer = Scorer.of(job, fitted.model).calibrated(calibration, temperature)
    fit_seconds = time.perf_counter() - started
    return CalibratedFit(scorer, fitted.history, train_seconds, fit_seconds, validation)


def _shared_work(job: FitJob) -> SharedWork | None:
    """Rows that train the same fits are in the same cell: its number has bit s if they train validation split s."""
    config = job.config
    if config.calibration not in VALIDATED or config.validation_splits > _SHARING:
        return None
    cells = np.zeros(job.dataset.n_rows, dtype=np.int64)
    for split in range(config.validation_splits):
        cells[job.validation(split).dataset.split.train] |= 1 << split
    return SharedWork(cells)


def _calibrate(
    job: FitJob, context: FitContext, announce: Announce
) -> tuple[Calibration, float, dict[str, Any] | None]:
    config = job.config
    if config.calibration not in VALIDATED:
        return Calibration.parse(config.calibration), 1.0, None
    fits = []
    for split in range(config.validation_splits):
        progress = announce(f"validation {split + 1}/{config.validation_splits}")
        checkpoint = context.checkpoint and context.checkpoint.with_name(f"validation-{split}.safetensors")
        fits.append(validate(job, split, replace(context, progress=progress, checkpoint=checkpoint)))
    sides = [fit.sides for fit in fits]
    calibration, harmonic = choose_calibration(sides, VALIDATED[config.calibration])
    scores = np.concatenate([calibration.apply(fit.logits, fit.seen) for fit in fits])
    labels = np.concatenate([fit.labels for fit in fits])
    temperature = 1.0 if math.isnan(harmonic) else fit_temperature(scores, labels)  # NaN: rows of one side alone
    record = {
        "harmonic": harmonic,
        "splits": config.validation_splits,
        "kind": config.validation,
        "temperature": temperature,
        "ece": {
            "before": expected_calibration_error(softmax(scores), labels),
            "after": expected_calibration_error(softmax(scores, temperature), labels),
        },
        "curves": _curves(sides, calibration),
    }
    return calibration, temperature, json_numbers(record)


@dataclass(frozen=True)
class ValidationFit:
    """What is kept of a validation fit. Every split has the same classes, the seen ones; which it holds out differs."""

    sides: SideScores
    logits: npt.NDArray[np.float32]  # [n, n_classes] of some held-out rows, or all
    labels: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]


def validate(job: FitJob, split: int, context: FitContext) -> ValidationFit:
    """Fit on a validation split of the training rows; what a calibration needs to know of its held-out rows."""
    part = job.validation(split)
    data = part.dataset
    logits = Scorer.of(part, part.fit(context).model).logits(data.features[data.test_rows])
    labels = data.labels[data.test_rows]
    kept = slice(None, None, -(-logits.size // _KEPT))
    return ValidationFit(side_scores(logits, labels, data.seen), logits[kept].copy(), labels[kept], data.seen)


def _curves(sides: Sequence[SideScores], chosen: Calibration) -> dict[str, dict[str, list[float]]]:
    """U, S and H on validation against either kind of calibration, for the report."""
    kinds: tuple[Literal["scale", "bias"], ...] = ("scale", "bias")
    return {kind: calibration_curves(sides, kind, calibration_values(sides, kind, chosen)).rounded() for kind in kinds}
