"""Prediction sets: coverage of classes that validation has not met, and what is in a set."""

import json

import numpy as np
import pytest
from scipy.special import log_softmax

from classnorm import Scorer, fit
from classnorm.data import load
from classnorm.errors import ConfigError
from classnorm.metrics.novelty import ScoredSplit
from classnorm.metrics.probability import GroupQuantiles, PredictionSets, members


def world(seed, classes=80, rows=40):
    """Scores in which some classes are harder than others; half of the classes are seen."""
    generator = np.random.default_rng(seed)
    seen = np.arange(classes) < classes // 2
    labels = np.repeat(np.arange(classes), rows)
    skill = generator.normal(2.0, 0.7, classes) + 0.5 * seen
    scores = generator.normal(size=(len(labels), classes))
    scores[np.arange(len(labels)), labels] += skill[labels]
    return ScoredSplit(scores, labels, seen)


@pytest.mark.parametrize("coverage", [0.7, 0.9])
def test_classes_that_validation_has_not_met_are_covered(coverage):
    covered = []
    for seed in range(12):
        sets = PredictionSets.measure([world(3 * seed), world(3 * seed + 1)], temperature=1.0)
        fresh = world(3 * seed + 2)
        inside = members(fresh.scores, 1.0, sets.limits(fresh.seen, coverage))
        right = inside[np.arange(len(inside)), fresh.labels]
        covered.append([right[fresh.seen[fresh.labels] == side].mean() for side in (True, False)])
    np.testing.assert_allclose(np.mean(covered, axis=0), coverage, atol=0.03)


def test_a_set_holds_the_classes_within_the_limit_of_their_side_and_always_the_best():
    sets = PredictionSets(GroupQuantiles(1000, (-9.0, 1.0)), GroupQuantiles(1000, (-9.0, 0.0)))
    scores, seen = np.random.default_rng(3).normal(0, 2, (200, 6)), np.arange(6) < 3
    inside = members(scores, temperature=2.0, limits=sets.limits(seen, 0.9))
    level = 0.9 * 1001 / 1000
    limits = np.where(seen, -9 + 10 * level, -9 + 9 * level)
    for row, chosen in zip(scores, inside, strict=True):
        nonconformity = -log_softmax(row / 2.0) - np.log(6)
        assert set(np.flatnonzero(chosen)) == set(np.flatnonzero(nonconformity <= limits)) | {int(row.argmax())}


def test_more_coverage_than_the_number_of_classes_can_vouch_for_takes_the_whole_side():
    few = GroupQuantiles(9, (0.0, 1.0))
    assert few.threshold(0.89) < 1.0
    assert few.threshold(0.95) == float("inf")  # the next of ten classes may be the worst


def test_the_sets_of_a_scorer_are_named_best_first_and_survive_saving(small_dataset, tmp_path):
    scorer = fit(small_dataset, method="kernel")
    rows = small_dataset.test_rows
    features, labels = small_dataset.features[rows], small_dataset.labels[rows]
    found = scorer.prediction_sets(features, 0.8)
    scores = scorer.scores(features)
    for row, names in enumerate(found):
        values = [scores[row, scorer.class_names.index(name)] for name in names]
        assert values == sorted(values, reverse=True)
        assert names[0] == scorer.class_names[scores[row].argmax()]
    covered = np.mean([scorer.class_names[c] in names for c, names in zip(labels, found, strict=True)])
    assert covered == pytest.approx(0.8, abs=0.1)  # ten unseen classes
    wider = scorer.prediction_sets(features, 0.95)
    assert all(set(a) <= set(b) for a, b in zip(found, wider, strict=True))
    assert Scorer.load(scorer.save(tmp_path)).prediction_sets(features[:30], 0.8) == found[:30]


def test_a_model_without_validation_has_no_sets(small_dataset, tmp_path):
    scorer = fit(small_dataset, method="kernel", calibration="none")
    assert "sets" not in json.loads((scorer.save(tmp_path) / "model.json").read_text())
    with pytest.raises(ConfigError, match="no thresholds for `coverage`"):
        scorer.prediction_sets(small_dataset.features[:3])


@pytest.mark.parametrize("coverage", [0.0, 1.0, float("nan")])
def test_a_coverage_that_is_no_probability_is_refused(small_dataset, coverage):
    scorer = fit(small_dataset, method="kernel", calibration="none")
    with pytest.raises(ConfigError, match="between 0 and 1"):
        scorer.prediction_sets(small_dataset.features[:3], coverage)


@pytest.mark.slow
def test_seen_and_unseen_classes_of_cub_are_covered(real_data):
    data = load(str(real_data / "xlsa17" / "data" / "CUB"), features="efficientnet_lite0")
    scorer, rows = fit(data, method="kernel"), data.test_rows
    labels = data.labels[rows]
    for coverage in (0.8, 0.9, 0.95):
        sets = scorer.prediction_sets(data.features[rows], coverage)
        right = np.array([data.class_names[c] in names for c, names in zip(labels, sets, strict=True)])
        shares = [np.mean([right[labels == c].mean() for c in np.unique(labels) if data.seen[c] == s]) for s in (1, 0)]
        assert shares[0] == pytest.approx(coverage, abs=0.025)
        assert shares[1] == pytest.approx(coverage, abs=0.035)
