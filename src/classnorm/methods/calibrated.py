"""Fit and calibrate: the only place that runs validation fits for a calibration."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from classnorm.data import ZeroShotDataset, validation_dataset
from classnorm.files import write_json
from classnorm.methods.method import VALIDATED, FitContext, Method, MethodConfig, fit_key
from classnorm.methods.scorer import Scorer
from classnorm.metrics import Calibration, SideScores, choose_calibration, side_scores
from classnorm.metrics.calibration import calibration_curves, calibration_values
from classnorm.training import History, Progress

__all__ = ["CalibratedFit", "fit_calibrated"]


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
    cache = context.checkpoint.with_suffix(".validation.json") if context.checkpoint is not None else None
    key = f"{fit_key(dataset, name, config, seed)} {config.calibration} {config.validation} {config.validation_splits}"
    if context.resume and (known := _known(cache, key)):
        return Calibration(**known["calibration"]), known["record"]
    sides = []
    for number in range(config.validation_splits):
        part = validation_dataset(dataset, config.validation, seed=number)
        progress = announce(f"validation {number + 1}/{config.validation_splits}")
        fitted = method.fit(part, config, seed, replace(context, progress=progress, checkpoint=None))
        logits = _scorer(part, name, config, fitted.model).logits(part.features[part.test_rows])
        sides.append(side_scores(logits, part.labels[part.test_rows], part.seen))
    calibration, harmonic = choose_calibration(sides, VALIDATED[config.calibration])
    record = {
        "harmonic": harmonic,
        "splits": config.validation_splits,
        "kind": config.validation,
        "curves": _curves(sides, calibration),
    }
    if cache is not None and context.checkpoint_every:
        chosen = {"kind": calibration.kind, "value": calibration.value}
        write_json(cache, {"key": key, "calibration": chosen, "record": record})
    return calibration, record


def _curves(sides: Sequence[SideScores], chosen: Calibration) -> dict[str, dict[str, list[float]]]:
    """U, S and H on validation against either kind of calibration, for the report."""
    kinds: tuple[Literal["scale", "bias"], ...] = ("scale", "bias")
    return {kind: calibration_curves(sides, kind, calibration_values(sides, kind, chosen)).rounded() for kind in kinds}


def _known(cache: Path | None, key: str) -> dict[str, Any] | None:
    """The calibration that an interrupted run had found already."""
    if cache is None or not cache.is_file():
        return None
    try:
        document: dict[str, Any] = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if document.get("key") == key else None
