"""Novelty of rows: each number by its formula, and the areas by counting pairs."""

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.stats import zscore

from classnorm.metrics import auroc, fpr_at_tpr, novelty_statistics


def test_the_area_is_the_share_of_pairs_in_the_right_order():
    generator = np.random.default_rng(0)
    known, novel = generator.integers(0, 8, 30), generator.integers(3, 11, 20)  # with ties
    pairs = [1.0 if b > a else 0.5 if a == b else 0.0 for a in known for b in novel]
    assert auroc(known, novel) == pytest.approx(100 * np.mean(pairs))


@pytest.mark.parametrize("tpr", [0.05, 0.5, 0.95, 1.0])
def test_the_false_positives_are_counted_at_the_lowest_threshold_that_accepts_enough_known_rows(tpr):
    generator = np.random.default_rng(1)
    known, novel = generator.normal(size=40), generator.normal(1, 1, size=25)
    threshold = min(t for t in known if np.mean(known <= t) >= tpr)
    assert fpr_at_tpr(known, novel, tpr) == pytest.approx(100 * np.mean(novel <= threshold))


def test_without_rows_on_a_side_there_is_no_area():
    assert np.isnan(auroc([], [1.0])) and np.isnan(fpr_at_tpr([1.0], []))


def test_statistics_are_those_of_the_formulas():
    generator = np.random.default_rng(2)
    scores, seen, temperature = generator.normal(0, 3, (7, 9)), np.arange(9) < 5, 0.7
    found = novelty_statistics(scores, seen, temperature)
    logs, z = log_softmax(scores / temperature, axis=1), zscore(scores, axis=1)
    expected = {
        "probability": -logs.max(axis=1),
        "entropy": -(np.exp(logs) * logs).sum(axis=1),
        "energy": -logsumexp(scores / temperature, axis=1),
        "standardised": -z.max(axis=1),
        "seen": -z[:, :5].max(axis=1),
        "unseen": -z[:, 5:].max(axis=1),
        "balance": -np.abs(z[:, :5].max(axis=1) - z[:, 5:].max(axis=1)),
    }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, err_msg=name)


def test_certain_rows_equal_scores_and_a_single_side_have_finite_statistics():
    for scores in ([[1e4, 0.0, -1e4]], [[0.0, 0.0, 0.0]]):
        found = novelty_statistics(scores, seen=[True, True, True])
        assert found.keys() == {"probability", "entropy", "energy", "standardised"}
        assert all(np.isfinite(values).all() for values in found.values())


def test_scores_are_standardised_however_little_they_vary():
    scores = np.array([[0.1, 0.2, 0.6], [0.0, 0.0, 0.0]])
    statistics = novelty_statistics(scores, np.array([True, True, False]))
    assert statistics["standardised"][0] == pytest.approx(-zscore(scores[0]).max())
    assert statistics["standardised"][1] == 0  # nothing varies
