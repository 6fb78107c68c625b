"""Unlabelled pictures: soft assignments, class shares, the penalty, the guard."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from classnorm.data import SyntheticConfig, synthetic
from classnorm.errors import ConfigError, ModelWarning
from classnorm.metrics import gzsl_scores
from classnorm.scoring import Scorer, class_vectors, fit
from classnorm.scoring.validation import DescriptionWeight

WEIGHT = DescriptionWeight(description=3.0, penalty=0.4, training_rows=20.0)


@pytest.fixture(scope="module")
def dataset():
    return synthetic(SyntheticConfig(classes=20, unseen=6, rows=900, features=16, attributes=8))


@pytest.fixture(scope="module")
def scorer(dataset):
    trained = fit(dataset, "classnorm", hidden=32, epochs=10, lr=3e-3, calibration="bias:0.5")
    return weighted(trained.calibrated(trained.calibration, 0.8), WEIGHT)


def weighted(scorer, weight):
    return replace(scorer, validation=replace(scorer.validation, description_weight=weight))


@pytest.fixture(scope="module")
def rows(dataset):
    return dataset.features[dataset.test_rows]


def unit(table):
    return table / np.linalg.norm(table, axis=1, keepdims=True)


def expectation_maximisation(scorer, rows):
    """Written out for cosines: prototypes, counts and the penalty after five steps."""
    described, seen = scorer.prototypes().astype(np.float64), scorer.seen
    gamma, transformed = float(scorer.model.gamma), unit(rows.astype(np.float64))
    worth = np.where(seen, 23.0, 3.0)

    def scores(prototypes, penalty, weights):
        table = gamma**2 * transformed @ unit(prototypes).T - 0.5 * seen
        return table - penalty * np.where(seen, 0.0, weights)

    start = scores(described, 0.0, np.zeros(len(seen)))
    called_unseen = np.mean(~seen[start.argmax(axis=1)])
    table, log_shares = start, 0.0
    for _ in range(5):
        odds = np.exp(2.0 * (table - table.max(axis=1, keepdims=True)) / 0.8 + log_shares)
        odds /= odds.sum(axis=1, keepdims=True)
        counts = odds.sum(axis=0)
        log_shares = np.log(0.5 * counts / len(rows) + 0.5 / len(seen))
        mixed = (worth[:, None] * unit(described) + odds.T @ transformed) / (worth + counts)[:, None]
        prototypes = unit(mixed) * np.linalg.norm(described, axis=1, keepdims=True)
        weights = counts / (worth + counts)
        penalties = np.linspace(-10.0, 10.0, 1001)
        shares = [np.mean(~seen[scores(prototypes, p, weights).argmax(axis=1)]) for p in penalties]
        penalty = penalties[np.flatnonzero(np.array(shares) > called_unseen)[-1]]
        table = scores(prototypes, penalty, weights)
    return prototypes, counts, penalty


def test_the_steps_are_those_of_expectation_maximisation(scorer, rows):
    adapted = scorer.adapt(rows)
    prototypes, counts, penalty = expectation_maximisation(scorer, rows)
    found = dict(zip(adapted.classes.unlabelled.names, adapted.classes.unlabelled.counts, strict=True))
    np.testing.assert_allclose([found.get(name, 0.0) for name in scorer.class_names], counts, rtol=0.05, atol=0.2)
    assert sum(found.values()) == pytest.approx(len(rows), rel=1e-3)
    assert [entry["unlabelled"] for entry in adapted.vectors.evidence()] == [
        round(count, 1) for count in found.values()
    ]
    np.testing.assert_allclose(adapted.prototypes(), prototypes, atol=0.02 * np.abs(prototypes).max())
    assert adapted.description_weight.unlabelled_penalty == pytest.approx(penalty, abs=0.1)


def test_as_many_pictures_are_called_unseen_as_before(scorer, rows):
    before, after = (np.mean(~s.seen[s.scores(rows).argmax(axis=1)]) for s in (scorer, scorer.adapt(rows)))
    assert after == pytest.approx(before, abs=2 / len(rows))


@pytest.mark.parametrize("method", ["kernel", "classnorm"])
def test_unlabelled_pictures_tell_unseen_classes_apart(dataset, rows, method):
    changes = {} if method == "kernel" else {"epochs": 10, "hidden": 32, "lr": 3e-3}
    scorer = fit(dataset, method, calibration="bias:0.5", **changes)
    labels = dataset.labels[dataset.test_rows]
    before, after = (gzsl_scores(s.scores(rows), labels, dataset.seen) for s in (scorer, scorer.adapt(rows)))
    assert after.zsl > before.zsl + 1.0


def test_neither_order_nor_memory_matter(scorer, rows, monkeypatch):
    whole = scorer.adapt(rows)
    monkeypatch.setattr(class_vectors, "_CACHE", 0)
    shuffled = rows[np.random.default_rng(0).permutation(len(rows))]
    other = replace(scorer, block_bytes=8 * 20 * 50).adapt(shuffled)
    np.testing.assert_allclose(other.scores(rows[:50]), whole.scores(rows[:50]), rtol=1e-3, atol=5e-3)


def test_labelled_pictures_stay_what_they_are(scorer, dataset, rows):
    c = int(np.flatnonzero(~dataset.seen)[0])
    labelled = scorer.add_examples(dataset.features[dataset.labels == c][:3], [dataset.class_names[c]] * 3)
    adapted = labelled.adapt(rows)
    assert np.array_equal(adapted.classes.examples.sums, labelled.classes.examples.sums)
    assert adapted.without_examples().classes.pictures.names == ()
    assert np.array_equal(adapted.without_examples().logits(rows[:9]), scorer.logits(rows[:9]))


def test_an_adapted_scorer_is_saved_whole(scorer, rows, tmp_path):
    adapted = scorer.adapt(rows)
    loaded = Scorer.load(adapted.save(tmp_path))
    assert np.array_equal(loaded.scores(rows), adapted.scores(rows))
    assert loaded.description_weight == adapted.description_weight


def test_where_validation_saw_no_gain_the_scorer_stays_as_it_is(scorer, rows):
    doubtful = weighted(scorer, replace(WEIGHT, unlabelled_gain=-1.25))
    with pytest.warns(ModelWarning, match="changed H by -1.25 points"):
        assert doubtful.adapt(rows) is doubtful
    with warnings.catch_warnings(action="error"):
        assert doubtful.adapt(rows, force=True).is_transductive
        assert weighted(scorer, replace(WEIGHT, unlabelled_gain=1.0)).adapt(rows).is_transductive


def test_a_model_of_seen_classes_alone_can_adapt(scorer, dataset, rows):
    seen = scorer.only([name for name, known in zip(scorer.class_names, scorer.seen, strict=True) if known])
    assert seen.adapt(rows).description_weight.unlabelled_penalty == 0.0


def test_no_pictures_change_nothing_and_methods_without_prototypes_refuse(scorer, dataset, rows):
    assert scorer.adapt(np.empty((0, 16))) is scorer
    with pytest.raises(ConfigError, match=r"eszsl .*cannot learn from single pictures"):
        fit(dataset, "eszsl", calibration="none").adapt(rows)


def test_models_whose_weight_of_descriptions_is_unknown_can_adapt(scorer, rows):
    assert weighted(scorer, None).adapt(rows).description_weight.description == 4.0


def test_transformed_rows_are_what_scorers_compute_with(scorer, rows):
    (block, transformed), *_ = class_vectors.transformed(scorer.vectors, rows[:5], scorer.block_bytes)()
    assert torch.equal(transformed, block)
    np.testing.assert_allclose(scorer.vectors.logits(block).numpy(), scorer.logits(rows[:5]), rtol=1e-6)
