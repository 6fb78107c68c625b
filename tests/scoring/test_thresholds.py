"""Thresholds of novelty and prediction sets after pictures."""

from dataclasses import replace

import numpy as np
import pytest

from classnorm import Scorer, fit
from classnorm.data import SyntheticConfig, synthetic
from classnorm.errors import ModelError
from classnorm.metrics.novelty import NoveltyScore, Rejection
from classnorm.metrics.probability import GroupQuantiles, PredictionSets
from classnorm.scoring.validation import PictureThresholds


@pytest.fixture(scope="module")
def dataset():
    return synthetic(SyntheticConfig(classes=60, unseen=20, rows=3000, features=48, attributes=24, noise=1.2))


@pytest.fixture(scope="module")
def scorer(dataset):
    return fit(dataset, "kernel")


def without_pictures(scorer):
    """Without the thresholds that were measured with pictures."""
    return replace(scorer, validation=replace(scorer.validation, after_pictures=()))


def pictures(dataset, classes, count):
    rows = np.concatenate([np.flatnonzero(dataset.labels == c)[:count] for c in classes])
    return dataset.features[rows], [dataset.class_names[c] for c in dataset.labels[rows]]


def constant(value):
    """Quantiles that are the same at all levels."""
    return GroupQuantiles(100, (value, value))


def with_thresholds(scorer, *after):
    """A scorer with thresholds 1 (novelty), 2 (seen) and 3 (unseen) for descriptions alone."""
    score = NoveltyScore({"entropy": 1.0}, 0.0, (1.0, 1.0))
    sets = PredictionSets(constant(2.0), constant(3.0))
    made = tuple(
        PictureThresholds(kind, share, replace(score, quantiles=(n, n)), PredictionSets(constant(s), constant(u)))
        for kind, share, n, s, u in after
    )
    validation = replace(scorer.validation, rejection=Rejection(score, score), sets=sets, after_pictures=made)
    return replace(scorer, validation=validation)


def test_thresholds_are_interpolated_by_the_weight_of_the_pictures(dataset, scorer):
    fixed = with_thresholds(scorer, ("examples", 0.5, 0.0, 1.0, 1.0), ("examples", 0.9, -4.0, 1.0, 0.0))
    unseen = np.flatnonzero(~dataset.seen)
    few = fixed.add_examples(*pictures(dataset, unseen[:5], 1))
    shares = few.vectors.corrections.shares[0][unseen]
    assert (shares[:5] > 0).all() and not shares[5:].any()
    mean = shares.mean()
    assert 0.0 < mean < 0.5
    assert few.novelty_threshold(0.05) == pytest.approx(1.0 - mean / 0.5)
    limits = few.validation.set_limits(0.9, few.seen, few.vectors.corrections.shares)
    np.testing.assert_allclose(limits[dataset.seen], 2.0 - mean / 0.5)
    points = np.interp(shares, [0.0, 0.5, 0.9], [3.0, 1.0, 0.0])  # each unseen class has its own
    np.testing.assert_allclose(limits[unseen], points)


def test_labelled_and_unlabelled_pictures_add_their_corrections(dataset, scorer):
    unseen = np.flatnonzero(~dataset.seen)
    fixed = with_thresholds(scorer, ("examples", 1e-6, 0.7, 2.0, 3.0), ("unlabelled", 1e-6, 0.9, 2.0, 3.0))
    labelled = fixed.add_examples(*pictures(dataset, unseen, 1))
    unlabelled = fixed.adapt(dataset.features[dataset.test_rows], force=True)
    both = replace(labelled, classes=replace(labelled.classes, unlabelled=unlabelled.classes.unlabelled))
    assert [each.novelty_threshold(0.05) for each in (fixed, labelled, unlabelled, both)] == pytest.approx(
        [1.0, 0.7, 0.9, 0.6]
    )


def test_without_pictures_or_without_thresholds_for_them_thresholds_stay(dataset, scorer):
    fixed = with_thresholds(scorer, ("examples", 0.5, 0.0, 1.0, 1.0))
    few = fixed.add_examples(*pictures(dataset, np.flatnonzero(~dataset.seen), 2))
    assert fixed.novelty_threshold(0.05) == few.without_examples().novelty_threshold(0.05) == 1.0
    assert without_pictures(few).novelty_threshold(0.05) == 1.0


def test_a_fit_measures_thresholds_with_pictures_and_models_keep_them(scorer, tmp_path):
    kinds = [each.kind for each in scorer.validation.after_pictures]
    assert kinds == ["examples"] * 3 + ["unlabelled"]
    shares = [each.share for each in scorer.validation.after_pictures[:3]]
    assert shares == sorted(shares) and shares[0] > 0.0 and shares[-1] < 1.0
    assert Scorer.load(scorer.save(tmp_path)).validation.after_pictures == scorer.validation.after_pictures


@pytest.mark.parametrize("change", [{"kind": "videos"}, {"share": 2.0}, {"novelty": {"weights": {}}}])
def test_thresholds_that_make_no_sense_are_refused(scorer, tmp_path, change, rewrite_model):
    folder = scorer.save(tmp_path)
    rewrite_model(folder, lambda document: document["after_pictures"][0].update(change))
    with pytest.raises(ModelError):
        Scorer.load(folder)


def test_coverage_holds_after_examples(dataset, scorer):
    unseen = np.flatnonzero(~dataset.seen)
    few = scorer.add_examples(*pictures(dataset, unseen, 5))
    first = np.concatenate([np.flatnonzero(dataset.labels == c)[:5] for c in unseen])
    rows = np.setdiff1d(dataset.test_rows, first)
    of_unseen, covered = ~dataset.seen[dataset.labels[rows]], []
    for each in (few, without_pictures(few)):
        sets = each.prediction_sets(dataset.features[rows], 0.9)
        right = [dataset.class_names[c] in names for c, names in zip(dataset.labels[rows], sets, strict=True)]
        covered.append([np.mean(np.array(right)[side]) for side in (~of_unseen, of_unseen)])
    assert covered[0] == pytest.approx([0.9, 0.9], abs=0.05)  # 20 unseen classes vary by a few points
    assert covered[0][1] < covered[1][1] - 0.01  # without the correction, sets are larger than need be
