"""Fits with a calibration chosen on validation splits."""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.data import ZeroShotDataset
from classnorm.data.validation import hold_out, hold_out_rows
from classnorm.errors import ModelWarning
from classnorm.methods.method import VALIDATED, FitJob, resolve
from classnorm.metrics import (
    BestScores,
    Calibration,
    best_seen_and_unseen,
    calibrated_predictions,
    calibrated_scores,
    choose_calibration,
    expected_calibration_error,
    fit_temperature,
    softmax,
)
from classnorm.metrics.calibration import calibration_curves, calibration_values, keeping_calibration
from classnorm.metrics.novelty import choose_rejection
from classnorm.metrics.probability import PredictionSets, ScoredSplit
from classnorm.progress import stage
from classnorm.results.numbers import json_numbers
from classnorm.scoring.description_weight import choose_description_weight, measure_thresholds
from classnorm.scoring.scorer import Scorer
from classnorm.scoring.validation import Validation
from classnorm.training import Device, FitContext, History, Processes, SharedWork, TrainingConfig, pick_device

_SHARING = 3  # validation splits up to which work is shared; each doubles the results to keep
_KINDS: tuple[Literal["scale", "bias"], ...] = ("scale", "bias")
_FEW_CLASSES = 20  # below, held-out classes say too little about the balance of seen and unseen ones
_FOLDS = 3  # of the training rows of few classes
_KEPT = 0.8  # share of rows that the calibration of few seen classes keeps; from benchmarks/few_classes.py --tune
_ROWS_CHECKED = 1000  # training rows that the final model is tried on
_MAX_LOGITS = 1 << 20  # validation logits kept to fit the temperature: some of the rows are enough for one number


@dataclass(frozen=True)
class CalibratedFit:
    """A calibrated scorer and the record of its fit."""

    scorer: Scorer
    history: History
    train_seconds: float
    """The final fit only, with the epochs before an interruption."""
    fit_seconds: float
    """Including validation fits and calibration."""
    validation: dict[str, Any] | None = None
    """The choice on validation splits and its scores there; None without validation."""
    cpu_seconds: float = 0.0
    """Of the final fit, summed over threads: unlike other times, hardly affected by what else the machine does."""
    training_accuracy: float = math.nan
    """Percent of (at most a thousand) training rows that the model gets right, with all classes competing."""
    notices: tuple[str, ...] = ()
    """Reasons not to rely on the model."""


def fit(
    dataset: ZeroShotDataset,
    method: str = "classnorm",
    recipe: str = "reference",
    seed: int = 0,
    device: Device = "auto",
    **changes: Any,
) -> Scorer:
    """Train a method on a dataset and return its scorer, calibrated according to the recipe.

    Warns (`ModelWarning`) if there are too few seen classes to calibrate, or if the model gets less than half of its
    own training rows right.

    Args:
        changes: config fields that override the recipe, e.g. ``hidden=512``.

    >>> from classnorm.data import synthetic, SyntheticConfig
    >>> data = synthetic(SyntheticConfig(classes=10, unseen=3, rows=200, features=16))
    >>> scorer = fit(data, hidden=32, epochs=2, calibration="none")
    >>> scorer.scores(data.features[:5]).shape
    (5, 10)
    """
    job = FitJob(dataset, *resolve(dataset, method, recipe, **changes), seed)
    fitted = fit_calibrated(job, FitContext(pick_device(device)))
    for text in fitted.notices:
        warnings.warn(text, ModelWarning, stacklevel=2)
    return fitted.scorer


def fit_calibrated(job: FitJob, context: FitContext) -> CalibratedFit:
    """Choose the calibration on validation splits if the config says so, then fit on all training rows.

    The validation fits also determine the temperature of the probabilities, which is 1 without them. Validation
    fits and the final fit are stages of `progress`.
    """
    if isinstance(job.config, TrainingConfig):
        # The first optimizer of a process makes PyTorch import its compiler: keep that second or two out of the timing.
        importlib.import_module("torch._dynamo")
    started = time.perf_counter()
    context = replace(context, earlier=[])
    jobs = _validation_jobs(job)
    context = replace(context, shared=_shared_work(jobs, job.dataset.n_rows))
    fits = []
    for split, part in enumerate(jobs):
        checkpoint = context.checkpoint and context.checkpoint.with_name(f"validation-{split}.safetensors")
        with stage(f"validation {split + 1}/{len(jobs)}"):
            fits.append(_validate(part, replace(context, checkpoint=checkpoint)))
    chosen, record = _decided(job, fits, _with_novel_classes(job, context) if _is_of_rows(job) else fits)
    with stage("training"):
        before, cpu = time.perf_counter(), time.process_time()
        final = replace(context, earlier=[])
        fitted = job.fit(final)
    now, cpu_seconds = time.perf_counter(), time.process_time() - cpu
    in_final, in_all = _earlier(final.earlier, "seconds"), _earlier(context.earlier + final.earlier, "seconds")
    scorer = Scorer.of(job, fitted.model, chosen)
    accuracy = training_accuracy(scorer, job.dataset)
    return CalibratedFit(
        scorer,
        fitted.history,
        now - before + in_final,
        now - started + in_all,
        record,
        cpu_seconds + _earlier(final.earlier, "cpu_seconds"),
        accuracy,
        _notices(job, chosen.calibration, accuracy),
    )


def _earlier(histories: Sequence[History], key: str) -> float:
    """The time of epochs before an interruption."""
    return sum(record.get(key, 0.0) for history in histories for record in history)


def training_accuracy(scorer: Scorer, dataset: ZeroShotDataset) -> float:
    """Percent of training rows, evenly spaced ones if there are many, that are assigned to their class."""
    train = dataset.split.train
    rows = train[:: -(-len(train) // _ROWS_CHECKED)]
    best_scores = scorer.best_scores(dataset.view(rows), dataset.labels[rows])
    return 100.0 * float(np.mean(calibrated_predictions(best_scores, scorer.calibration) == dataset.labels[rows]))


def _notices(job: FitJob, calibration: Calibration, accuracy: float) -> tuple[str, ...]:
    data, notices = job.dataset, []
    n_seen, n_unseen = int(data.seen.sum()), int((~data.seen).sum())
    if has_few_classes(job) and n_unseen:
        basis = f"it keeps {100 * _KEPT:.0f} % of held-out training rows in their class"
        notices.append(
            f"{n_seen} seen classes are too few to measure the balance between seen and unseen classes: "
            + (basis if calibration.kind != "none" else "without a second row per class, it is left as it is")
            + "; how well unseen classes are recognised is not known"
        )
    if accuracy < 50.0:
        notices.append(
            f"the model gets only {accuracy:.0f} % of its own training rows right, with all {data.n_classes} classes "
            "competing; do not rely on it: add seen classes or rows, check labels and descriptors, or try another "
            "`method` or `calibration`"
        )
    return tuple(notices)


def has_few_classes(job: FitJob) -> bool:
    """Whether the calibration is to be validated, but there are too few seen classes to hold some out."""
    return job.config.calibration in VALIDATED and int(job.dataset.seen.sum()) < _FEW_CLASSES


def _is_of_rows(job: FitJob) -> bool:
    """Whether only rows are held out for validation, no classes."""
    return has_few_classes(job) and not job.dataset.seen.all()


def _validation_jobs(job: FitJob) -> list[FitJob]:
    """The fits on parts of the training rows that determine the calibration.

    Of few seen classes, only rows are held out, and all unseen classes compete for them. If there are none, a class is
    held out at a time.
    """
    data, config = job.dataset, job.config
    if config.calibration not in VALIDATED:
        return []
    if not has_few_classes(job):
        return [job.validation(split) for split in range(config.validation_splits)]
    if _is_of_rows(job):
        parts = [hold_out_rows(data, fold, _FOLDS) for fold in range(_FOLDS)]
    elif data.n_classes > 2:
        parts = [hold_out(data, 1, 1 / _FOLDS, seed) for seed in range(_FOLDS)]
    else:
        parts = []
    return [replace(job, dataset=part) for part in parts]


def _shared_work(jobs: Sequence[FitJob], n_rows: int) -> SharedWork | None:
    """Rows that train the same fits are in the same cell: its number has bit s if they train validation split s."""
    if not 0 < len(jobs) <= _SHARING:
        return None
    cells = np.zeros(n_rows, dtype=np.int64)
    for split, job in enumerate(jobs):
        cells[job.dataset.split.train] |= 1 << split
    return SharedWork(cells)


def _decided(
    job: FitJob, fits: Sequence[ValidationFit], with_novel: Sequence[ValidationFit]
) -> tuple[Validation, dict[str, Any] | None]:
    """What held-out rows decide, and the record of it; None without validation.

    Args:
        fits: on the validation splits.
        with_novel: fits on splits with classes held out.
    """
    config = job.config
    if not fits:  # also of two classes, both seen
        is_asked = config.calibration in VALIDATED
        return Validation(Calibration() if is_asked else Calibration.parse(config.calibration)), None
    best_scores, kind = [fit.best_scores for fit in fits], VALIDATED[config.calibration]
    if has_few_classes(job):
        calibration = keeping_calibration(best_scores, _KEPT, kind)
        harmonic = float(np.mean([calibrated_scores(part, calibration)[2] for part in best_scores]))
    else:
        calibration, harmonic = choose_calibration(best_scores, kind)
    scores = np.concatenate([calibration.apply(fit.logits, fit.seen) for fit in fits])
    labels = np.concatenate([fit.labels for fit in fits])
    is_known = len(labels) > 0 if has_few_classes(job) else not math.isnan(harmonic)  # NaN: one side has no rows
    temperature = fit_temperature(scores, labels) if is_known else 1.0
    splits = [ScoredSplit(calibration.apply(fit.logits, fit.seen), fit.labels, fit.seen) for fit in with_novel]
    rejection, novelty = choose_rejection(splits, temperature) if splits else (None, {})
    with_vectors = [(fit.scorer.vectors, fit.dataset) for fit in with_novel]
    weight, pictures, scored = choose_description_weight(with_vectors, calibration, temperature)
    after_pictures = measure_thresholds(scored, None if rejection is None else rejection.two_sides, temperature)
    record = {
        "harmonic": harmonic,
        "splits": len(fits),
        "kind": "rows" if has_few_classes(job) else config.validation,
        "temperature": temperature,
        "ece": {
            "before": expected_calibration_error(softmax(scores), labels),
            "after": expected_calibration_error(softmax(scores, temperature), labels),
        },
        "novelty": novelty,
        "pictures": pictures,
        "curves": {} if math.isnan(harmonic) else _curves(best_scores, calibration),
    }
    sets = PredictionSets.measure(splits, temperature) if splits else None
    return Validation(calibration, temperature, rejection, sets, weight, after_pictures), json_numbers(record)


def _with_novel_classes(job: FitJob, context: FitContext) -> list[ValidationFit]:
    """Fits with some of few classes held out, which show what rows of no known class look like."""
    if job.dataset.seen.sum() < 3:
        return []
    context = replace(context, shared=None, checkpoint=None)
    return [validate(job, split, context) for split in range(job.config.validation_splits)]


def _curves(best_scores: Sequence[BestScores], chosen: Calibration) -> dict[str, dict[str, list[float]]]:
    values = {kind: calibration_values(best_scores, kind, chosen) for kind in _KINDS}
    return {kind: calibration_curves(best_scores, kind, values[kind]).rounded() for kind in _KINDS}


@dataclass(frozen=True)
class ValidationFit:
    """A validation fit and its scores. All splits have the same classes, the seen ones, but hold out different ones."""

    scorer: Scorer
    dataset: ZeroShotDataset
    best_scores: BestScores
    logits: npt.NDArray[np.float32]  # [n, n_classes] of at least some held-out rows
    labels: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]


def validate(job: FitJob, split: int, context: FitContext) -> ValidationFit:
    """Fit on a validation split of the training rows and score the held-out rows."""
    return _validate(job.validation(split), context)


def _validate(part: FitJob, context: FitContext) -> ValidationFit:
    data = part.dataset
    scorer, labels = Scorer.of(part, part.fit(context).model), data.labels[data.test_rows]
    step = max(1, -(-len(labels) * data.n_classes // _MAX_LOGITS))
    own = context.processes.part(len(labels))
    none = np.empty((0, data.n_classes), dtype=np.float32)
    best_scores, kept = [best_seen_and_unseen(none, labels[:0], data.seen)], [none]
    for rows, logits in scorer.logit_blocks(data.view(data.test_rows[own])):
        best_scores.append(best_seen_and_unseen(logits, labels[own][rows], data.seen))
        kept.append(logits[-(own.start + rows.start) % step :: step].copy())
    together = of_all(BestScores.joined(best_scores), context.processes)
    some = context.processes.concatenated(np.concatenate(kept))
    return ValidationFit(scorer, data, together, some, labels[::step], data.seen)


def of_all(best_scores: BestScores, processes: Processes) -> BestScores:
    """The scores of the rows of all processes, each of which has those of its part."""
    columns = [field.name for field in fields(BestScores) if field.name != "average"]
    return BestScores(
        **{name: processes.concatenated(getattr(best_scores, name)) for name in columns}, average=best_scores.average
    )
