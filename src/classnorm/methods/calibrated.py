"""Fit and calibrate: the only place that runs validation fits for a calibration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from classnorm.data import ZeroShotDataset, validation_dataset
from classnorm.methods.method import VALIDATED, FitContext, Method, MethodConfig
from classnorm.methods.scorer import Scorer
from classnorm.metrics import Calibration, SideScores, choose_calibration, side_scores
from classnorm.metrics.calibration import calibration_curves, calibration_values
from classnorm.training import History, Progress

__all__ = ["CalibratedFit", "fit_calibrated", "validation_sides"]


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

    Args:
        announce: told the name of each stage before it starts; returns a progress callback for it.
    """
    config.check()
    started = time.perf_counter()
    calibration, validation = _calibrate(dataset, name, method, config, seed, context, announce)
    progress = announce("training")
    before = time.perf_counter()
    fitted = method.fit(dataset, config, seed, replace(context, progress=progress))
    train_seconds = time.perf_counter() - before
    scorer = _scorer(dataset, name, config, fitted.model).calibrated(calibration)
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
) -> tuple[Calibration, dict[str, Any] | None]:
    if config.calibration not in VALIDATED:
        return Calibration.parse(config.calibration), None
    sides = []
    for number in range(config.validation_splits):
        progress = announce(f"validation {number + 1}/{config.validation_splits}")
        checkpoint = context.checkpoint and context.checkpoint.with_name(f"validation-{number}.safetensors")
        own = replace(context, progress=progress, checkpoint=checkpoint)
        sides.append(validation_sides(dataset, name, method, config, seed, number, own))
    calibration, harmonic = choose_calibration(sides, VALIDATED[config.calibration])
    record = {
        "harmonic": harmonic,
        "splits": config.validation_splits,
        "kind": config.validation,
        "curves": _curves(sides, calibration),
    }
    return calibration, record


def validation_sides(
    dataset: ZeroShotDataset,
    name: str,
    method: Method,
    config: MethodConfig,
    seed: int,
    split: int,
    context: FitContext,
) -> SideScores:
    """Fit on a validation split of the training rows; what a calibration needs to know of its held-out rows."""
    part = validation_dataset(dataset, config.validation, split)
    fitted = method.fit(part, config, seed, context)
    logits = _scorer(part, name, config, fitted.model).logits(part.features[part.test_rows])
    return side_scores(logits, part.labels[part.test_rows], part.seen)


def _curves(sides: Sequence[SideScores], chosen: Calibration) -> dict[str, dict[str, list[float]]]:
    """U, S and H on validation against either kind of calibration, for the report."""
    kinds: tuple[Literal["scale", "bias"], ...] = ("scale", "bias")
    return {kind: calibration_curves(sides, kind, calibration_values(sides, kind, chosen)).rounded() for kind in kinds}
