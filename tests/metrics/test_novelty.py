"""Novelty of rows: each number by its formula, and the areas by counting pairs."""

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.stats import zscore
from sklearn.linear_model import LogisticRegression

from classnorm.metrics import auroc, fpr_at_tpr, novelty_statistics
from classnorm.metrics.novelty import choose_rejection
from classnorm.metrics.probability import ScoredSplit


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


CLASSES, SEEN = 30, np.arange(30) < 20


def split_of(seed, rows=900):
    """Scores in which the right class stands out, more so if it is seen."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, rows)
    scores = generator.normal(size=(rows, CLASSES))
    scores[np.arange(rows), labels] += np.where(SEEN[labels], 6.0, 3.0)
    return ScoredSplit(scores, labels, SEEN)


def test_the_threshold_rejects_the_asked_share_of_fresh_known_rows():
    rejection, _ = choose_rejection([split_of(0), split_of(1)], temperature=1.0)
    fresh = split_of(2, rows=6000)
    kept = np.arange(CLASSES) < 27  # some classes are not described
    statistics = novelty_statistics(fresh.scores[:, kept], SEEN[kept])
    novelty = rejection.two_sides.of(statistics)
    known = kept[fresh.labels]
    for share in (0.05, 0.2):
        rejected = novelty > rejection.two_sides.threshold(share)
        sides = [rejected[known & (SEEN[fresh.labels] == side)].mean() for side in (True, False)]
        assert np.mean(sides) == pytest.approx(share, abs=0.03)
    assert auroc(novelty[known], novelty[~known]) > 75


def test_the_combination_is_the_logistic_regression_of_scikit_learn():
    split = split_of(3)
    rejection, record = choose_rejection([split], temperature=1.0)
    assert max(record["two_sides"], key=lambda name: record["two_sides"][name]["auroc"]) == "combined"
    rows, novel, weights = [], [], []
    for group in np.array_split(np.random.default_rng(CLASSES).permutation(np.flatnonzero(~SEEN)), 3):
        kept = ~np.isin(np.arange(CLASSES), group)
        statistics = novelty_statistics(split.scores[:, kept], SEEN[kept])
        rows.append(np.stack([statistics[name] for name in rejection.two_sides.weights], axis=1))
        novel.append(~kept[split.labels])
        of_side = np.where(novel[-1], 0, np.where(SEEN[split.labels], 1, 2))
        weights.append(np.array([0.5, 0.25, 0.25])[of_side] / np.bincount(of_side)[of_side])
    table, target, weight = (np.concatenate(parts) for parts in (rows, novel, weights))
    spread = table.std(axis=0)
    other = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(table / spread, target, weight * len(table) / 3)
    np.testing.assert_allclose(list(rejection.two_sides.weights.values()), other.coef_[0] / spread, rtol=1e-3)
    assert rejection.two_sides.intercept == pytest.approx(other.intercept_[0], rel=1e-3)


def test_scores_in_which_sides_mean_nothing_leave_the_choice_to_a_single_number():
    generator = np.random.default_rng(5)
    splits = []
    for _ in range(2):
        labels = generator.integers(0, CLASSES, 150)
        scores = generator.normal(0, 0.1, size=(150, CLASSES))
        scores[np.arange(150), labels] += 4.0  # known rows are certain, the others are not
        splits.append(ScoredSplit(scores, labels, SEEN))
    rejection, record = choose_rejection(splits, temperature=1.0)
    assert record["two_sides"]["entropy"]["auroc"] == 100.0
    assert list(rejection.two_sides.weights) == ["entropy"]


def test_too_few_held_out_classes_leave_one_score_for_all():
    seen = np.arange(CLASSES) < 28
    split = split_of(4)
    rejection, _ = choose_rejection([ScoredSplit(split.scores, split.labels, seen)], temperature=1.0)
    assert rejection.two_sides is None
    assert rejection.score(seen) is rejection.one_side
