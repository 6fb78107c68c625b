"""The seen–unseen curve and its area, against a sweep: subtract λ from the seen logits and take the argmax."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classnorm.metrics import (
    BestScores,
    ausuc,
    best_seen_and_unseen,
    curve_of,
    gzsl_scores,
    seen_unseen_curve,
)

AVERAGES = pytest.mark.parametrize("average", ["class", "sample"])
Case = tuple[np.ndarray, np.ndarray, np.ndarray]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Integer logits with many ties, and at least one row on each side."""
    seen_mask = draw(st.lists(st.booleans(), min_size=2, max_size=6).filter(lambda mask: len(set(mask)) == 2))
    labels = draw(st.lists(st.integers(0, len(seen_mask) - 1), max_size=12))
    labels += [seen_mask.index(True), seen_mask.index(False)]
    row = st.lists(st.integers(-4, 4), min_size=len(seen_mask), max_size=len(seen_mask))
    logits = draw(st.lists(row, min_size=len(labels), max_size=len(labels)))
    return np.array(logits, dtype=float), np.array(labels), np.array(seen_mask)


def random_case(seed: int, n: int = 40, n_classes: int = 7) -> Case:
    """Logits that know the classes and favour the seen ones; classes of unequal size."""
    rng = np.random.default_rng(seed)
    seen_mask = np.arange(n_classes) % 2 == 0
    labels = np.append(np.arange(n_classes), (rng.random(n - n_classes) ** 2 * n_classes).astype(int))
    logits = rng.normal(size=(n, n_classes)) + 1.5 * np.eye(n_classes)[labels] + seen_mask
    return logits, labels, seen_mask


def accuracy_by_loop(predictions: np.ndarray, labels: np.ndarray, average: str) -> float:
    if average == "sample":
        return 100 * float(np.mean(predictions == labels))
    return 100 * float(np.mean([np.mean(predictions[labels == c] == c) for c in sorted(set(labels.tolist()))]))


def sweep(logits: np.ndarray, labels: np.ndarray, seen_mask: np.ndarray, average: str) -> list[tuple[float, float]]:
    """(S, U) for a λ below, between and above all the differences at which any prediction can turn."""
    differences = np.unique(logits[:, seen_mask, None] - logits[:, None, ~seen_mask])
    between = (differences[1:] + differences[:-1]) / 2
    points = []
    for shift in [differences[0] - 1, *between, differences[-1] + 1]:
        predictions = (logits - shift * seen_mask).argmax(axis=1)
        is_seen = seen_mask[labels]
        points.append(
            (
                accuracy_by_loop(predictions[is_seen], labels[is_seen], average),
                accuracy_by_loop(predictions[~is_seen], labels[~is_seen], average),
            )
        )
    return points


def area_by_sweep(*case: np.ndarray, average: str) -> float:
    points = sweep(*case, average=average)
    return sum((s0 - s1) * (u0 + u1) / 2 for (s0, u0), (s1, u1) in itertools.pairwise(points)) / 100


@AVERAGES
@pytest.mark.parametrize("seed", range(6))
def test_ausuc_is_the_area_under_the_sweep(seed, average):
    case = random_case(seed)
    assert ausuc(*case, average) == pytest.approx(area_by_sweep(*case, average=average), abs=1e-6)


@AVERAGES
@given(case=cases())
def test_ausuc_is_the_area_under_the_sweep_when_many_logits_are_equal(average, case):
    assert ausuc(*case, average) == pytest.approx(area_by_sweep(*case, average=average), abs=1e-6)


@AVERAGES
@given(case=cases())
def test_the_curve_visits_the_points_of_the_sweep_in_order(average, case):
    curve = seen_unseen_curve(*case, average)

    def corners(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [point for point, _ in itertools.groupby((round(s, 6) + 0.0, round(u, 6) + 0.0) for s, u in points)]

    visited = list(zip(curve.seen.tolist(), curve.unseen.tolist(), strict=True))
    assert corners(visited) == corners(sweep(*case, average=average))


@AVERAGES
@given(case=cases())
def test_seen_accuracy_never_rises_along_the_curve(average, case):
    assert (np.diff(seen_unseen_curve(*case, average).seen) <= 0).all()


@AVERAGES
@given(case=cases())
def test_unseen_accuracy_never_falls_along_the_curve(average, case):
    assert (np.diff(seen_unseen_curve(*case, average).unseen) >= 0).all()


@given(case=cases())
def test_thresholds_ascend_and_separate_the_points(case):
    curve = seen_unseen_curve(*case)
    assert (np.diff(curve.thresholds) > 0).all()
    assert len(curve.seen) == len(curve.unseen) == len(curve.thresholds) + 1


@AVERAGES
@given(case=cases())
def test_the_curve_starts_where_unseen_classes_never_win_and_ends_where_seen_ones_never_do(average, case):
    curve = seen_unseen_curve(*case, average)
    assert curve.unseen[0] == 0.0 and curve.seen[-1] == 0.0


@AVERAGES
@given(case=cases())
def test_the_last_point_is_t1(average, case):
    logits, labels, seen_mask = case
    unseen_only = np.where(seen_mask, -100.0, logits).argmax(axis=1)
    rows = ~seen_mask[labels]
    expected = accuracy_by_loop(unseen_only[rows], labels[rows], average)
    assert seen_unseen_curve(*case, average).zsl == pytest.approx(expected)


@given(case=cases(), shift=st.integers(-1000, 1000))
def test_ausuc_does_not_change_when_seen_logits_are_shifted(case, shift):
    logits, labels, seen_mask = case
    assert ausuc(logits + shift * seen_mask, labels, seen_mask) == ausuc(*case)


@given(case=cases())
def test_ausuc_lies_between_0_and_100(case):
    assert 0 <= ausuc(*case) <= 100 + 1e-9


@given(case=cases())
def test_scores_carry_the_area_of_the_curve(case):
    assert gzsl_scores(*case).ausuc == ausuc(*case)


def test_a_perfect_classifier_has_ausuc_100():
    assert ausuc(np.eye(4), [0, 1, 2, 3], [True, True, False, False]) == pytest.approx(100.0)


def test_rows_that_all_turn_at_once_give_the_triangle():
    """Constant logits: S drops from 50 to 0 while U rises from 0 to 50, in one step."""
    curve_area = ausuc(np.zeros((4, 4)), [0, 1, 2, 3], [True, True, False, False])
    assert curve_area == pytest.approx(50 * 50 / 2 / 100)


def test_the_harmonic_mean_of_each_point_is_that_of_its_accuracies():
    curve = seen_unseen_curve(*random_case(0))
    pairs = zip(curve.seen.tolist(), curve.unseen.tolist(), strict=True)
    expected = [2 * s * u / (s + u) if s + u else 0.0 for s, u in pairs]
    assert curve.harmonic.tolist() == pytest.approx(expected)


def test_only_seen_rows_leave_the_area_unknown():
    assert math.isnan(ausuc(np.eye(2), [0, 0], [True, False]))


def test_only_unseen_rows_leave_the_area_unknown():
    assert math.isnan(ausuc(np.eye(2), [1, 1], [True, False]))


@pytest.mark.parametrize("seen", [True, False])
def test_classes_of_one_side_only_leave_the_area_unknown(seen):
    assert math.isnan(ausuc(np.eye(2), [0, 1], [seen, seen]))


def test_with_seen_classes_only_the_curve_is_the_one_point_that_there_is():
    curve = seen_unseen_curve(np.eye(2), [0, 1], [True, True])
    assert (curve.thresholds.tolist(), curve.seen.tolist()) == ([], [100.0])


def test_with_unseen_classes_only_the_curve_is_the_one_point_that_there_is():
    curve = seen_unseen_curve(np.eye(2), [0, 1], [False, False])
    assert (curve.thresholds.tolist(), curve.unseen.tolist()) == ([], [100.0])


def test_no_rows_leave_the_area_unknown():
    assert math.isnan(ausuc(np.empty((0, 2)), [], [True, False]))


@given(case=cases())
def test_side_scores_hold_the_best_class_of_each_side(case):
    logits, labels, seen_mask = case
    best_scores = best_seen_and_unseen(*case)
    for i, row in enumerate(logits.tolist()):
        for side, best, winner in [
            (True, best_scores.best_seen, best_scores.seen_class),
            (False, best_scores.best_unseen, best_scores.unseen_class),
        ]:
            score, negative_class = max((x, -c) for c, x in enumerate(row) if seen_mask[c] == side)
            assert (best[i], winner[i]) == (score, -negative_class)
    assert best_scores.is_seen.tolist() == seen_mask[labels].tolist()


@AVERAGES
@given(case=cases())
def test_the_weights_of_each_side_add_up_to_1(average, case):
    best_scores = best_seen_and_unseen(*case, average)
    assert best_scores.weights[best_scores.is_seen].sum() == pytest.approx(1.0)
    assert best_scores.weights[~best_scores.is_seen].sum() == pytest.approx(1.0)


def test_the_best_classes_alone_give_the_curve():
    case = random_case(1)
    assert curve_of(best_seen_and_unseen(*case)).area == ausuc(*case)


def test_single_precision_logits_give_the_area_of_their_exact_values():
    logits, labels, seen_mask = random_case(2)
    single = logits.astype(np.float32)
    assert ausuc(single, labels, seen_mask) == ausuc(single.astype(np.float64), labels, seen_mask)


def test_blocks_of_rows_joined_are_the_scores_of_all_rows():
    generator = np.random.default_rng(0)
    logits, labels, seen = generator.normal(size=(30, 5)), generator.integers(0, 5, 30), np.arange(5) < 3
    whole = best_seen_and_unseen(logits, labels, seen, "sample")
    joined = BestScores.joined(
        [best_seen_and_unseen(logits[a:b], labels[a:b], seen, "sample") for a, b in ((0, 7), (7, 30))]
    )
    assert joined.average == "sample"
    for name in ("best_seen", "best_unseen", "seen_class", "unseen_class", "labels", "is_seen"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
