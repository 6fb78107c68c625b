"""Calibration by validation: honest, and worth having."""

import json

import numpy as np
import pytest
import torch

from classnorm.data import SyntheticConfig, ZeroShotDataset, synthetic, validation_dataset
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.metrics import (
    Calibration,
    best_seen_and_unseen,
    calibrated_scores,
    choose_calibration,
    expected_calibration_error,
    fit_temperature,
    gzsl_scores,
    softmax,
)
from classnorm.scoring import fit, fit_calibrated

CPU = FitContext(torch.device("cpu"))


def test_a_calibration_by_validation_raises_the_harmonic_mean_of_a_biased_model():
    dataset = synthetic(SyntheticConfig(classes=80, unseen=20, rows=4000, features=64, attributes=30, noise=1.0))
    rows = dataset.test_rows
    harmonic = {}
    for calibration in ("none", "validation"):
        scorer = fit(dataset, hidden=64, epochs=10, lr=3e-3, calibration=calibration)
        harmonic[calibration] = gzsl_scores(
            scorer.scores(dataset.features[rows]), dataset.labels[rows], dataset.seen
        ).harmonic
    assert harmonic["validation"] > harmonic["none"] + 1


@pytest.mark.parametrize(
    ("name", "kind"), [("validation:scale", "scale"), ("validation:bias", "bias"), ("validation:grid", "grid")]
)
def test_the_chosen_calibration_is_the_best_on_validation_fits_made_by_hand(small_dataset, small, name, kind):
    method, config = resolve(small_dataset, calibration=name, validation_splits=2, **small)
    fitted = fit_calibrated(FitJob(small_dataset, method, config), CPU)
    best_scores = []
    for number in range(2):
        part = validation_dataset(small_dataset, "matched", seed=number)
        scorer = fit(part, calibration="none", **small)
        logits = scorer.logits(part.features[part.test_rows])
        best_scores.append(best_seen_and_unseen(logits, part.labels[part.test_rows], part.seen))
    chosen = fitted.scorer.calibration
    assert (chosen, fitted.validation["harmonic"]) == choose_calibration(best_scores, kind)
    neutral = np.mean([calibrated_scores(s, Calibration())[2] for s in best_scores])
    assert fitted.validation["harmonic"] >= neutral


def test_a_fixed_calibration_runs_no_validation_fit(small_dataset, small, watching):
    method, config = resolve(small_dataset, calibration="scale:0.9", **small)
    with watching() as stages:
        fitted = fit_calibrated(FitJob(small_dataset, method, config), CPU)
    assert stages == ["training"]
    assert fitted.scorer.calibration == Calibration("scale", 0.9)
    assert fitted.validation is None


def test_the_time_of_the_final_fit_is_part_of_the_whole(small_dataset, small):
    method, config = resolve(small_dataset, calibration="validation", **small)
    fitted = fit_calibrated(FitJob(small_dataset, method, config), CPU)
    assert 0 < fitted.train_seconds < fitted.fit_seconds


def test_the_record_holds_the_scores_of_validation_fits_against_scale_and_bias(small_dataset, small):
    method, config = resolve(small_dataset, calibration="validation", validation_splits=2, **small)
    fitted = fit_calibrated(FitJob(small_dataset, method, config), CPU)
    record = json.loads(json.dumps(fitted.validation, allow_nan=False))
    parts = [validation_dataset(small_dataset, "matched", seed=number) for number in range(2)]
    logits = [fit(part, calibration="none", **small).logits(part.features[part.test_rows]) for part in parts]
    for kind in ("scale", "bias"):
        curve = record["curves"][kind]
        assert {name: len(values) for name, values in curve.items()} == dict.fromkeys(
            ("value", "unseen", "seen", "harmonic"), 41
        )
        calibration = Calibration(kind, curve["value"][17])
        scores = [
            gzsl_scores(calibration.apply(x, part.seen), part.labels[part.test_rows], part.seen)
            for x, part in zip(logits, parts, strict=True)
        ]
        for name in ("unseen", "seen", "harmonic"):
            assert curve[name][17] == pytest.approx(np.mean([s[name] for s in scores]), abs=1e-4)


def test_the_temperature_is_that_of_calibrated_validation_scores(small_dataset, small):
    method, config = resolve(small_dataset, calibration="validation:bias", validation_splits=2, **small)
    fitted = fit_calibrated(FitJob(small_dataset, method, config), CPU)
    scores, labels = [], []
    for number in range(2):
        part = validation_dataset(small_dataset, "matched", seed=number)
        scorer = fit(part, calibration=str(fitted.scorer.calibration), **small)
        scores.append(scorer.scores(part.features[part.test_rows]))
        labels.append(part.labels[part.test_rows])
    table, index = np.concatenate(scores), np.concatenate(labels)
    temperature = fitted.scorer.temperature
    assert temperature == pytest.approx(fit_temperature(table, index), rel=1e-3)
    assert fitted.validation["temperature"] == temperature
    ece = fitted.validation["ece"]
    assert ece["before"] == pytest.approx(expected_calibration_error(softmax(table), index), abs=1e-3)
    assert ece["after"] == pytest.approx(expected_calibration_error(softmax(table, temperature), index), abs=1e-3)


def test_without_validation_the_temperature_is_one(small_dataset, small):
    assert fit(small_dataset, calibration="bias:1", **small).temperature == 1.0


def test_classes_of_one_row_each_leave_nothing_to_calibrate_on_and_a_record_that_json_can_hold():
    table = np.eye(6, 8, dtype=np.float32)
    data = ZeroShotDataset.from_arrays(
        table[:5] + 0.1, np.arange(5), table, [f"class {i}" for i in range(6)], train=np.arange(5), name="tiny"
    )
    method, config = resolve(data, "kernel")
    fitted = fit_calibrated(FitJob(data, method, config), CPU)
    json.dumps(fitted.validation, allow_nan=False)
    assert fitted.validation["harmonic"] is None
    assert fitted.scorer.temperature == 1.0


@pytest.mark.parametrize("splits", [2, 4])  # four are too many to share work
def test_fits_that_share_work_choose_as_separate_ones_do(small_dataset, splits):
    method, config = resolve(small_dataset, "kernel", validation_splits=splits)
    together = fit_calibrated(FitJob(small_dataset, method, config), CPU)
    best_scores = []
    for number in range(splits):
        part = validation_dataset(small_dataset, "matched", seed=number)
        logits = fit(part, method="kernel", calibration="none").logits(part.features[part.test_rows])
        best_scores.append(best_seen_and_unseen(logits, part.labels[part.test_rows], part.seen))
    calibration, harmonic = choose_calibration(best_scores, "bias")
    assert together.validation["harmonic"] == pytest.approx(harmonic, abs=0.5)
    assert together.scorer.calibration.value == pytest.approx(calibration.value, abs=0.05)
    alone = fit(small_dataset, method="kernel", calibration="none")
    rows = small_dataset.features[:100]
    np.testing.assert_allclose(together.scorer.logits(rows), alone.logits(rows), atol=2e-2)  # of scores up to 20
