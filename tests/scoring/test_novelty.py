"""None of these: the choice by validation, its thresholds, and what a model keeps of it."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from classnorm import Scorer, fit
from classnorm.data import load
from classnorm.errors import ConfigError, ModelError
from classnorm.metrics import auroc, novelty_statistics, softmax
from classnorm.metrics.novelty import ScoredSplit, choose_rejection

CLASSES, SEEN = 30, np.arange(30) < 20


def split_of(seed, rows=900):
    """Scores in which the right class stands out, more so if it is seen."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, rows)
    scores = generator.normal(size=(rows, CLASSES))
    scores[np.arange(rows), labels] += np.where(SEEN[labels], 6.0, 3.0)
    return ScoredSplit(scores, labels, SEEN)


@pytest.fixture(scope="module")
def scorer(small_dataset):
    return fit(small_dataset, method="kernel")


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


def test_rows_of_undescribed_classes_are_more_novel(small_dataset, scorer):
    unseen = np.flatnonzero(~small_dataset.seen)[:4]
    known = scorer.only([name for i, name in enumerate(scorer.class_names) if i not in unseen])
    rows = small_dataset.test_rows
    novel = np.isin(small_dataset.labels[rows], unseen)
    novelty = known.novelty(small_dataset.features[rows])
    assert auroc(novelty[~novel], novelty[novel]) > 70
    rejected = ~known.known(small_dataset.features[rows], reject=0.1)
    np.testing.assert_array_equal(rejected, novelty > known.novelty_threshold(0.1))
    assert rejected[novel].mean() > 2 * rejected[~novel].mean()


def test_a_saved_model_keeps_its_thresholds_and_blocks_of_rows_change_nothing(scorer, small_dataset, tmp_path):
    rows = small_dataset.features[:50]
    loaded = replace(Scorer.load(scorer.save(tmp_path)), block_bytes=1 << 11)
    np.testing.assert_allclose(loaded.novelty(rows), scorer.novelty(rows), rtol=1e-4, atol=1e-5)
    assert loaded.validation.rejection == scorer.validation.rejection


def test_a_model_without_thresholds_still_ranks_rows_but_refuses_to_reject(
    scorer, small_dataset, tmp_path, rewrite_model
):
    rewrite_model(scorer.save(tmp_path), lambda document: document.pop("rejection"))
    old = Scorer.load(tmp_path)
    p = softmax(old.scores(small_dataset.features[:20]), old.temperature)
    np.testing.assert_allclose(old.novelty(small_dataset.features[:20]), -(p * np.log(p)).sum(axis=1), atol=1e-9)
    with pytest.raises(ConfigError, match="no thresholds for `reject`"):
        old.known(small_dataset.features[:20])


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_outside_of_zero_to_one_is_refused(scorer, share):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        scorer.novelty_threshold(share)


@pytest.mark.parametrize(
    "damage", [{"weights": {"charm": 1.0}}, {"weights": {}}, {"quantiles": [1.0]}, {"intercept": "x"}]
)
def test_damaged_thresholds_are_one_clear_error(scorer, tmp_path, damage, rewrite_model):
    rewrite_model(scorer.save(tmp_path), lambda document: document["rejection"]["one_side"].update(damage))
    with pytest.raises(ModelError, match="do not fit together"):
        Scorer.load(tmp_path)


@pytest.mark.slow
def test_undescribed_birds_are_found_better_than_by_the_maximum_probability(real_data):
    data = load(str(real_data / "xlsa17" / "data" / "CUB"), features="efficientnet_lite0")
    scorer, rows, unseen = fit(data, method="kernel"), data.test_rows, np.flatnonzero(~data.seen)
    gains = []
    for draw in range(4):
        left_out = np.random.default_rng(draw).permutation(unseen)[: len(unseen) // 3]
        part = scorer.only([name for i, name in enumerate(data.class_names) if i not in left_out])
        novel = np.isin(data.labels[rows], left_out)
        novelty, doubt = part.novelty(data.features[rows]), -part.top(data.features[rows], 1).probabilities[:, 0]
        gains.append(auroc(novelty[~novel], novelty[novel]) - auroc(doubt[~novel], doubt[novel]))
    assert np.mean(gains) > 1.5
