"""Fit and calibrate: the only place that runs validation fits for a calibration."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.data import ZeroShotDataset, validation_dataset
from classnorm.methods.method import VALIDATED, FitContext, Method, MethodConfig
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
from classnorm.results.numbers import json_numbers
from classnorm.scoring.scorer import Scorer
from classnorm.training import History, Progress, TrainingConfig

__all__ = ["CalibratedFit", "ValidationFit", "fit_calibrated", "validate"]

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


def fit_calibrated(
    dataset: ZeroShotDataset,
    name: str,
    method: Method,
    config: MethodConfig,
    seed: int,
    context: FitContext,
    announce: Callable[[str], Progress | None] = lambda stage: None,
) -> CalibratedFit:
    """Choose a calibration on validation splits if the config asks for one, then fit on all training rows.

    The same validation fits give the temperature of the probabilities; without them it is 1.

    Args:
        announce: told the name of each stage before it starts; returns a progress callback for it.
    """
    config.check()
    if isinstance(config, TrainingConfig):
        # PyTorch imports its compiler with the first optimizer, for a second or two: once a process, part of no fit.
        importlib.import_module("torch._dynamo")
    started = time.perf_counter()
    calibration, temperature, validation = _calibrate(dataset, name, method, config, seed, context, announce)
    progress = announce("training")
    before = time.perf_counter()
    fitted = method.fit(dataset, config, seed, replace(context, progress=progress))
    train_seconds = time.perf_counter() - before
    scorer = _scorer(dataset, name, config, fitted.model).calibrated(calibration, temperature)
    fit_seconds = time.perf_counter() - started
    return CalibratedFit(scorer, fitted.history, train_seconds, fit_seconds, validation)


def _scorer(dataset: ZeroShotDataset, name: str, config: MethodConfig, model: Any) -> Scorer:
    return Scorer(model, name, config, dataset.class_names, dataset.descriptors, dataset.seen, dataset.d_z)


def _calibrate(
    dataset: ZeroShotDataset,
    name: str,
    method: Method,
    config: MethodConfig,
    seed: int,
    context: FitContext,
    announce: Callable[[str], Progress | None],
) -> tuple[Calibration, float, dict[str, Any] | None]:
    if config.calibration not in VALIDATED:
        return Calibration.parse(config.calibration), 1.0, None
    outcomes = []
    for number in range(config.validation_splits):
        progress = announce(f"validation {number + 1}/{config.validation_splits}")
        checkpoint = context.checkpoint and context.checkpoint.with_name(f"validation-{number}.safetensors")
        own = replace(context, progress=progress, checkpoint=checkpoint)
        outcomes.append(validate(dataset, name, method, config, seed, number, own))
    sides = [outcome.sides for outcome in outcomes]
    calibration, harmonic = choose_calibration(sides, VALIDATED[config.calibration])
    scores = np.concatenate([calibration.apply(outcome.logits, outcome.seen) for outcome in outcomes])
    labels = np.concatenate([outcome.labels for outcome in outcomes])
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


def validate(
    dataset: ZeroShotDataset,
    name: str,
    method: Method,
    config: MethodConfig,
    seed: int,
    split: int,
    context: FitContext,
) -> ValidationFit:
    """Fit on a validation split of the training rows; what a calibration needs to know of its held-out rows."""
    part = validation_dataset(dataset, config.validation, split)
    fitted = method.fit(part, config, seed, context)
    logits = _scorer(part, name, config, fitted.model).logits(part.features[part.test_rows])
    labels = part.labels[part.test_rows]
    kept = slice(None, None, -(-logits.size // _KEPT))
    return ValidationFit(side_scores(logits, labels, part.seen), logits[kept].copy(), labels[kept], part.seen)


def _curves(sides: Sequence[SideScores], chosen: Calibration) -> dict[str, dict[str, list[float]]]:
    """U, S and H on validation against either kind of calibration, for the report."""
    kinds: tuple[Literal["scale", "bias"], ...] = ("scale", "bias")
    return {kind: calibration_curves(sides, kind, calibration_values(sides, kind, chosen)).rounded() for kind in kinds}
