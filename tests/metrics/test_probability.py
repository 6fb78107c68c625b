"""Probabilities, their calibration error, and prediction sets."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from classnorm.metrics import class_quantiles, expected_calibration_error, fit_temperature, nonconformity, softmax
from classnorm.metrics.probability import GroupQuantiles, PredictionSets, ScoredSplit, members


def likelihood_loss(scores, labels, temperature):
    total = 0.0
    for row, label in zip(scores, labels, strict=True):
        exponentials = [math.exp(s / temperature) for s in row]
        total -= math.log(exponentials[label] / sum(exponentials))
    return total / len(labels)


def calibration_error(probabilities, labels, bins):
    gaps = 0.0
    for b in range(bins):
        inside = [i for i, row in enumerate(probabilities) if b / bins < max(row) <= (b + 1) / bins]
        if inside:
            right = sum(np.argmax(probabilities[i]) == labels[i] for i in inside) / len(inside)
            sure = sum(max(probabilities[i]) for i in inside) / len(inside)
            gaps += len(inside) / len(labels) * abs(right - sure)
    return gaps


def noisy(seed, n=400, k=6, sure=4.0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, k, n)
    scores = generator.standard_normal((n, k))
    scores[np.arange(n), labels] += 1.0
    return sure * scores, labels


@pytest.mark.parametrize("sure", [0.01, 1.0, 30.0])
def test_no_other_temperature_is_likelier(sure):
    scores, labels = noisy(0, n=150, sure=sure)
    best = fit_temperature(scores, labels)
    at_best = likelihood_loss(scores, labels, best)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert at_best <= likelihood_loss(scores, labels, factor * best)


def test_scores_times_a_number_have_the_temperature_times_it():
    scores, labels = noisy(1)
    assert fit_temperature(50.0 * scores, labels) == pytest.approx(50.0 * fit_temperature(scores, labels), rel=1e-4)


def test_the_temperature_of_true_log_probabilities_is_about_one():
    generator = np.random.default_rng(3)
    scores = 2.0 * generator.standard_normal((20_000, 5))
    chances = softmax(scores)
    labels = (chances.cumsum(axis=1) < generator.random((20_000, 1))).sum(axis=1)
    assert fit_temperature(scores, labels) == pytest.approx(1.0, abs=0.05)
    assert expected_calibration_error(chances, labels) < 0.02


def test_the_temperature_lowers_the_calibration_error_of_scores_that_are_too_sure():
    scores, labels = noisy(4, n=2000, sure=10.0)
    before = expected_calibration_error(softmax(scores), labels)
    after = expected_calibration_error(softmax(scores, fit_temperature(scores, labels)), labels)
    assert after < 0.2 * before


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        (np.zeros((0, 3)), []),
        (np.zeros((4, 3)), [0, 1, 2, 0]),
        (np.ones((4, 1)), [0, 0, 0, 0]),
        (np.full((2, 2), np.inf), [0, 1]),
    ],
)
def test_with_nothing_to_fit_the_temperature_is_one(scores, labels):
    assert fit_temperature(scores, labels) == 1.0


@pytest.mark.parametrize("labels", [[0, 1], [1, 0]])
def test_a_temperature_without_an_optimum_stays_bounded(labels):
    """All right: the colder the better. All wrong: the warmer the better."""
    temperature = fit_temperature([[3.0, 1.0], [0.0, 5.0]], labels)
    assert 0.01 < temperature < 200
    assert np.isfinite(softmax([[3.0, 1.0]], temperature)).all()


def test_extreme_scores_have_probabilities():
    np.testing.assert_array_equal(softmax([[1e300, -1e300], [-1e300, -1e300]]), [[1.0, 0.0], [0.5, 0.5]])


@given(st.integers(0, 10_000), st.integers(1, 20), st.floats(0.1, 20.0))
def test_the_calibration_error_is_that_of_the_definition(seed, bins, sure):
    scores, labels = noisy(seed, n=40, k=4, sure=sure)
    probabilities = softmax(scores)
    expected = calibration_error(probabilities.tolist(), labels.tolist(), bins)
    assert expected_calibration_error(probabilities, labels, bins) == pytest.approx(expected, abs=1e-12)


def test_the_calibration_error_without_rows_is_undefined():
    assert math.isnan(expected_calibration_error(np.zeros((0, 3)), []))


@pytest.mark.parametrize("function", [fit_temperature, expected_calibration_error])
@pytest.mark.parametrize(("scores", "labels"), [([1.0, 2.0], [0, 1]), ([[1.0, 2.0]], [2]), ([[1.0, 2.0]], [0, 1])])
def test_shapes_that_do_not_fit_are_refused(function, scores, labels):
    with pytest.raises(ValueError, match="must"):
        function(scores, labels)


def test_the_nonconformity_score_is_the_logarithm_of_the_probability_relative_to_chance():
    scores = np.random.default_rng(0).normal(size=(5, 8))
    np.testing.assert_allclose(nonconformity(scores, 0.5), -log_softmax(scores / 0.5, axis=1) - np.log(8))


@pytest.mark.parametrize("level", [0.01, 0.3, 0.5, 0.77, 1.0])
def test_a_quantile_is_the_least_value_that_covers_the_share_when_classes_count_the_same(level):
    generator = np.random.default_rng(1)
    values, classes = (
        generator.integers(0, 9, 60).astype(float),
        generator.choice(6, 60, p=[0.5, 0.3, 0.1, 0.05, 0.03, 0.02]),
    )

    def covered(limit):
        return np.mean([np.mean(values[classes == c] <= limit) for c in np.unique(classes)])

    expected = min(value for value in values if covered(value) >= level - 1e-9)
    assert class_quantiles(values, classes, [level])[0] == expected


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
