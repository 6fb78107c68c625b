"""The weight of descriptions against pictures, chosen on validation splits."""

import json
from dataclasses import replace

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, synthetic
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.metrics import Calibration, gzsl_scores
from classnorm.scoring import Scorer, fit
from classnorm.scoring.description_weight import Trial, choose_description_weight
from classnorm.scoring.fitting import validate
from classnorm.scoring.validation import DescriptionWeight
from classnorm.training import pick_device


@pytest.fixture(scope="module")
def dataset():
    return synthetic(SyntheticConfig(classes=40, unseen=10, rows=1600, features=24, attributes=10))


def validation_fit(dataset, method="kernel", **changes):
    job = FitJob(dataset, *resolve(dataset, method, "reference", **changes))
    fitted = validate(job, 0, FitContext(pick_device("cpu")))
    return fitted.scorer, fitted.dataset


def vectors_of(dataset):
    scorer, split = validation_fit(dataset)
    return scorer.vectors, split


@pytest.mark.parametrize(("method", "changes"), [("kernel", {}), ("dem", {"hidden": 16, "epochs": 3})])
def test_trials_score_like_scorers_with_examples(dataset, method, changes):
    scorer, split = validation_fit(dataset, method, **changes)
    trial = Trial.of(scorer.vectors, split, scorer.calibration)
    weight = DescriptionWeight(description=0.5, penalty=0.0, training_rows=0.0)
    logits, shares = trial.with_examples(weight, 2)
    rows = split.test_rows
    given = (trial.number >= 0) & (trial.number < 2)
    names = [split.class_names[c] for c in trial.labels[given]]
    weighted = replace(scorer, validation=replace(scorer.validation, description_weight=weight))
    expected = weighted.add_examples(split.features[rows[given]], names)
    scored = rows[trial.number < 0]
    np.testing.assert_allclose(logits, expected.logits(split.features[scored]), rtol=1e-3, atol=1e-3)
    scores = gzsl_scores(expected.logits(split.features[scored]), split.labels[scored], split.seen)
    assert trial.zsl(weight, 2) == pytest.approx(scores.zsl, abs=0.5)
    description_weights = expected.vectors.corrections.description_weights
    weights = dict(zip(expected.classes.pictures.names, description_weights, strict=True))
    np.testing.assert_allclose(shares, [1 - weights.get(name, 1.0) for name in split.class_names], atol=1e-6)


def test_a_fit_with_validation_chooses_the_weight_and_models_keep_it(dataset, tmp_path):
    scorer = fit(dataset, "kernel")
    assert scorer.validation.description_weight is not None
    assert scorer.description_weight.training_rows == pytest.approx(23, abs=12)
    assert Scorer.load(scorer.save(tmp_path)).validation == scorer.validation
    document = json.loads((tmp_path / "model.json").read_text())
    assert set(document["trust"]) >= {"description", "penalty", "training_rows", "unlabelled_gain"}


def test_descriptions_that_say_nothing_are_worth_few_pictures():
    dataset = synthetic(SyntheticConfig(classes=60, unseen=15, rows=2400, features=64, attributes=24, noise=2))
    noise = np.random.default_rng(0).normal(size=dataset.descriptors.shape).astype(np.float32)
    worth = []
    for data in (dataset, replace(dataset, descriptors=noise)):
        _, record, _ = choose_description_weight([vectors_of(data)], Calibration("bias", 0.5), 1.0)
        worth.append(float(max(record["worth"], key=record["worth"].get)))
    assert worth[0] >= 2 * worth[1]


@pytest.mark.parametrize("calibration", [Calibration("bias", 0.5), Calibration("scale", 0.9), Calibration()])
def test_the_penalty_is_chosen_for_every_calibration(dataset, calibration):
    split = vectors_of(dataset)
    weight, record, _ = choose_description_weight([split], calibration, 1.0)
    assert weight.penalty == record["examples"]["penalty"]
    assert record["examples"]["after"] >= record["examples"]["before"] - 1.0
    gain = record["unlabelled"]["after"] - record["unlabelled"]["before"]
    assert weight.unlabelled_gain == pytest.approx(gain)


def test_no_weight_is_chosen_without_validation_or_prototypes_among_features(dataset):
    assert fit(dataset, "kernel", calibration="bias:0.5").validation.description_weight is None
    assert fit(dataset, "eszsl").validation.description_weight is None
