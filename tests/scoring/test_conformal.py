"""Prediction sets: coverage of classes that validation has not met, and what is in a set."""

import json

import numpy as np
import pytest

from classnorm import Scorer, fit
from classnorm.data import load
from classnorm.errors import ConfigError


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
