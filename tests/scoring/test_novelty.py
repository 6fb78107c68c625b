"""None of these: the choice by validation, its thresholds, and what a model keeps of it."""

from dataclasses import replace

import numpy as np
import pytest

from classnorm import Scorer, fit
from classnorm.data import load
from classnorm.errors import ConfigError, ModelError
from classnorm.metrics import auroc, softmax


@pytest.fixture(scope="module")
def scorer(small_dataset):
    return fit(small_dataset, method="kernel")


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
