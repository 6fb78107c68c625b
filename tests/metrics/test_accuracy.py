"""Accuracies, and the seen–unseen curve."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classnorm.metrics import (
    BestScores,
    GZSLScores,
    accuracy,
    ausuc,
    best_seen_and_unseen,
    class_accuracies,
    curve_of,
    gzsl_scores,
    harmonic_mean,
    row_weights,
    seen_unseen_curve,
)

PERCENT = st.just(0.0) | st.floats(1e-6, 100)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[float]], list[int], list[bool]]:
    """Logits of few values, so ties are frequent; labels that leave some classes or a whole side without rows."""
    seen_mask = draw(st.lists(st.booleans(), min_size=1, max_size=6))
    labels = draw(st.lists(st.integers(0, len(seen_mask) - 1), min_size=1, max_size=15))
    row = st.lists(st.integers(-3, 3).map(float), min_size=len(seen_mask), max_size=len(seen_mask))
    logits = draw(st.lists(row, min_size=len(labels), max_size=len(labels)))
    return logits, labels, seen_mask


def plain_accuracy(predictions: list[int], labels: list[int], average: str) -> float:
    if not labels:
        return math.nan
    rights: dict[int, list[bool]] = {}
    for prediction, label in zip(predictions, labels, strict=True):
        rights.setdefault(label if average == "class" else 0, []).append(prediction == label)
    return 100 * sum(sum(right) / len(right) for right in rights.values()) / len(rights)


def plain_scores(logits, labels, seen_mask, average: str) -> dict[str, float]:
    def best(row: list[float], candidates: list[int]) -> int:
        winner = candidates[0]
        for c in candidates[1:]:
            if row[c] > row[winner]:
                winner = c
        return winner

    def of_side(side: bool, candidates: list[int]) -> float:
        rows = [i for i, label in enumerate(labels) if seen_mask[label] == side]
        return plain_accuracy([best(logits[i], candidates) for i in rows], [labels[i] for i in rows], average)

    everything = list(range(len(seen_mask)))
    unseen, seen = of_side(False, everything), of_side(True, everything)
    zsl = of_side(False, [c for c in everything if not seen_mask[c]])
    harmonic = 0.0 if unseen == seen == 0 else 2 * unseen * seen / (unseen + seen)
    return {"unseen": unseen, "seen": seen, "harmonic": harmonic, "zsl": zsl}


@pytest.mark.parametrize("average", ["class", "sample"])
@given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_accuracy_agrees_with_a_plain_loop(average, pairs):
    predictions, labels = [p for p, _ in pairs], [label for _, label in pairs]
    expected = plain_accuracy(predictions, labels, average)
    assert accuracy(predictions, labels, average) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("average", ["class", "sample"])
@given(case=cases())
def test_scores_agree_with_a_plain_loop(average, case):
    scores = dict(gzsl_scores(*case, average=average))
    del scores["ausuc"]
    assert scores == pytest.approx(plain_scores(*case, average), nan_ok=True)


@given(pairs=st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=20))
def test_class_accuracies_agree_with_a_plain_loop(pairs):
    correct, labels = [c for c, _ in pairs], [label for _, label in pairs]
    of_class = [[c for c, label in pairs if label == k] for k in range(5)]
    expected = [100 * sum(rows) / len(rows) if rows else math.nan for rows in of_class]
    assert class_accuracies(correct, labels, 5).tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("average", ["class", "sample"])
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_row_weights_add_up_to_1(average, labels):
    assert row_weights(labels, average).sum() == pytest.approx(1.0)


def test_class_average_counts_a_small_class_as_much_as_a_large_one():
    assert accuracy([0] * 10, [0] * 9 + [1], average="class") == pytest.approx(50.0)


def test_sample_average_counts_each_row_once():
    assert accuracy([0] * 10, [0] * 9 + [1], average="sample") == pytest.approx(90.0)


def test_scores_average_over_classes_unless_told_otherwise():
    case = ([[1.0, 0.0, 0.0]] * 4, [0, 0, 0, 1], [True, True, False])
    assert gzsl_scores(*case).seen == pytest.approx(50.0)


@pytest.mark.parametrize("seen_mask", [[True, False], [False, True]])
def test_equal_scores_go_to_the_class_with_the_lower_index(seen_mask):
    scores = gzsl_scores([[1.0, 1.0], [1.0, 1.0]], [0, 1], seen_mask)
    lower, higher = (scores.seen, scores.unseen) if seen_mask[0] else (scores.unseen, scores.seen)
    assert (lower, higher) == (100.0, 0.0)


def test_a_class_without_rows_is_left_out_of_the_average():
    scores = gzsl_scores([[1.0, 0.0, 0.0]], [0], [True, True, False])
    assert scores.seen == 100.0


def test_a_class_without_rows_competes_for_predictions():
    scores = gzsl_scores([[1.0, 2.0, 0.0]], [0], [True, True, False])
    assert scores.seen == 0.0


def test_only_unseen_classes_compete_for_t1():
    scores = gzsl_scores([[9.0, 1.0, 0.0]], [1], [True, False, False])
    assert (scores.unseen, scores.zsl) == (0.0, 100.0)


def test_without_unseen_rows_all_that_needs_them_is_nan():
    scores = gzsl_scores(np.eye(3), [0, 1, 0], [True, True, False])
    assert dict(scores) == pytest.approx(
        {"unseen": math.nan, "seen": 75.0, "harmonic": math.nan, "zsl": math.nan, "ausuc": math.nan}, nan_ok=True
    )


def test_without_seen_rows_all_that_needs_them_is_nan():
    scores = gzsl_scores(np.eye(3), [2, 2, 2], [True, True, False])
    assert dict(scores) == pytest.approx(
        {"unseen": 100 / 3, "seen": math.nan, "harmonic": math.nan, "zsl": 100.0, "ausuc": math.nan}, nan_ok=True
    )


def test_without_unseen_classes_all_that_needs_them_is_nan():
    scores = gzsl_scores(np.eye(3), [0, 1, 0], [True, True, True])
    assert dict(scores) == pytest.approx(
        {"unseen": math.nan, "seen": 75.0, "harmonic": math.nan, "zsl": math.nan, "ausuc": math.nan}, nan_ok=True
    )


def test_without_seen_classes_u_is_t1_and_the_rest_is_nan():
    scores = gzsl_scores(np.eye(3), [0, 1, 0], [False, False, False])
    assert dict(scores) == pytest.approx(
        {"unseen": 75.0, "seen": math.nan, "harmonic": math.nan, "zsl": 75.0, "ausuc": math.nan}, nan_ok=True
    )


def test_without_rows_every_score_is_nan():
    scores = gzsl_scores(np.empty((0, 2)), [], [True, False])
    assert all(math.isnan(value) for value in dict(scores).values())


def test_class_accuracies_without_rows_are_nan():
    assert np.isnan(class_accuracies([], [], n_classes=3)).tolist() == [True, True, True]


@given(unseen=PERCENT, seen=PERCENT)
def test_the_harmonic_mean_is_the_reciprocal_of_the_mean_reciprocal(unseen, seen):
    expected = 0.0 if 0 in (unseen, seen) else 1 / ((1 / unseen + 1 / seen) / 2)
    assert harmonic_mean(unseen, seen) == pytest.approx(expected, rel=1e-9)


def test_the_harmonic_mean_of_two_zeros_is_zero():
    assert harmonic_mean(0.0, 0.0) == 0.0


@pytest.mark.parametrize(("unseen", "seen"), [(math.nan, 0.0), (0.0, math.nan), (math.nan, 50.0)])
def test_the_harmonic_mean_with_an_unknown_side_is_unknown(unseen, seen):
    assert math.isnan(harmonic_mean(unseen, seen))


SCORES = GZSLScores(unseen=1.0, seen=2.0, harmonic=3.0, zsl=4.0, ausuc=5.0)


@pytest.mark.parametrize("name", [field.name for field in fields(GZSLScores)])
def test_scores_can_be_read_as_a_mapping(name):
    assert SCORES[name] == getattr(SCORES, name)


def test_scores_turn_into_a_dict():
    assert dict(SCORES) == {"unseen": 1.0, "seen": 2.0, "harmonic": 3.0, "zsl": 4.0, "ausuc": 5.0}


def test_scores_can_be_unpacked_and_iterated_over_by_name():
    assert [*SCORES] == [*{**SCORES}] == ["unseen", "seen", "harmonic", "zsl", "ausuc"]


def test_an_unknown_score_is_a_key_error():
    with pytest.raises(KeyError):
        SCORES["accuracy"]


@pytest.mark.parametrize("shape", [(3,), (3, 3), (2, 2), (3, 2, 1)])
def test_logits_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"\[n, n_classes\] = \[3, 2\]"):
        gzsl_scores(np.zeros(shape), [0, 1, 0], [True, False])


@pytest.mark.parametrize("label", [-1, 2])
def test_labels_that_are_no_class_are_refused(label):
    with pytest.raises(ValueError, match="labels must be in 0…1"):
        gzsl_scores(np.zeros((1, 2)), [label], [True, False])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_the_type_of_the_logits_does_not_matter(dtype):
    logits = np.random.default_rng(0).integers(-5, 5, (40, 4))
    labels = np.arange(40) % 4
    seen_mask = [True, False, True, False]
    assert gzsl_scores(logits.astype(dtype), labels, seen_mask) == gzsl_scores(logits.astype(float), labels, seen_mask)


AVERAGES = pytest.mark.parametrize("average", ["class", "sample"])
Case = tuple[np.ndarray, np.ndarray, np.ndarray]


@st.composite
def curve_cases(draw: st.DrawFn) -> Case:
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
@given(case=curve_cases())
def test_ausuc_is_the_area_under_the_sweep_when_many_logits_are_equal(average, case):
    assert ausuc(*case, average) == pytest.approx(area_by_sweep(*case, average=average), abs=1e-6)


@AVERAGES
@given(case=curve_cases())
def test_the_curve_visits_the_points_of_the_sweep_in_order(average, case):
    curve = seen_unseen_curve(*case, average)

    def corners(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [point for point, _ in itertools.groupby((round(s, 6) + 0.0, round(u, 6) + 0.0) for s, u in points)]

    visited = list(zip(curve.seen.tolist(), curve.unseen.tolist(), strict=True))
    assert corners(visited) == corners(sweep(*case, average=average))


@AVERAGES
@given(case=curve_cases())
def test_seen_accuracy_never_rises_along_the_curve(average, case):
    assert (np.diff(seen_unseen_curve(*case, average).seen) <= 0).all()


@AVERAGES
@given(case=curve_cases())
def test_unseen_accuracy_never_falls_along_the_curve(average, case):
    assert (np.diff(seen_unseen_curve(*case, average).unseen) >= 0).all()


@given(case=curve_cases())
def test_thresholds_ascend_and_separate_the_points(case):
    curve = seen_unseen_curve(*case)
    assert (np.diff(curve.thresholds) > 0).all()
    assert len(curve.seen) == len(curve.unseen) == len(curve.thresholds) + 1


@AVERAGES
@given(case=curve_cases())
def test_the_curve_starts_where_unseen_classes_never_win_and_ends_where_seen_ones_never_do(average, case):
    curve = seen_unseen_curve(*case, average)
    assert curve.unseen[0] == 0.0 and curve.seen[-1] == 0.0


@AVERAGES
@given(case=curve_cases())
def test_the_last_point_is_t1(average, case):
    logits, labels, seen_mask = case
    unseen_only = np.where(seen_mask, -100.0, logits).argmax(axis=1)
    rows = ~seen_mask[labels]
    expected = accuracy_by_loop(unseen_only[rows], labels[rows], average)
    assert seen_unseen_curve(*case, average).zsl == pytest.approx(expected)


@given(case=curve_cases(), shift=st.integers(-1000, 1000))
def test_ausuc_does_not_change_when_seen_logits_are_shifted(case, shift):
    logits, labels, seen_mask = case
    assert ausuc(logits + shift * seen_mask, labels, seen_mask) == ausuc(*case)


@given(case=curve_cases())
def test_ausuc_lies_between_0_and_100(case):
    assert 0 <= ausuc(*case) <= 100 + 1e-9


@given(case=curve_cases())
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


@given(case=curve_cases())
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
@given(case=curve_cases())
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
