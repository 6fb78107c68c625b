"""Accuracies against a plain loop, and what happens at ties, absent classes and empty sides."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classnorm.metrics import (
    GZSLScores,
    accuracy,
    class_accuracies,
    gzsl_scores,
    harmonic_mean,
    row_weights,
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
