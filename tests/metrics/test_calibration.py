"""Calibrations: written and read, applied, and chosen against a brute-force search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classnorm.errors import ConfigError
from classnorm.metrics import (
    PAPER_SCALES,
    Calibration,
    best_seen_and_unseen,
    calibrated_scores,
    choose_calibration,
    gzsl_scores,
)
from classnorm.metrics.calibration import calibrated_predictions, calibration_values, keeping_calibration

Case = tuple[np.ndarray, np.ndarray, np.ndarray]
SEEDS = pytest.mark.parametrize("seed", range(3))


def random_case(seed: int, n: int = 150, n_classes: int = 8) -> Case:
    """Positive logits that know the classes and favour the seen ones; classes of unequal size."""
    rng = np.random.default_rng(seed)
    seen_mask = np.arange(n_classes) % 2 == 0
    labels = np.append(np.arange(n_classes), (rng.random(n - n_classes) ** 2 * n_classes).astype(int))
    logits = 10 + rng.normal(size=(n, n_classes)) + 1.5 * np.eye(n_classes)[labels] + 1.2 * seen_mask
    return logits, labels, seen_mask


def harmonic_by_argmax(case: Case, calibration: Calibration) -> float:
    """H by lowering the seen logits here, and scoring the result."""
    logits, labels, seen_mask = case
    lowered = logits.copy()
    for c in np.flatnonzero(seen_mask):
        lowered[:, c] = (
            logits[:, c] * calibration.value if calibration.kind == "scale" else logits[:, c] - calibration.value
        )
    return gzsl_scores(lowered, labels, seen_mask).harmonic


# Reading and writing


@pytest.mark.parametrize(
    ("text", "calibration"),
    [
        ("none", Calibration()),
        ("scale:0.95", Calibration("scale", 0.95)),
        ("scale:1", Calibration("scale", 1.0)),
        ("bias:1.25", Calibration("bias", 1.25)),
        ("bias:-0.5", Calibration("bias", -0.5)),
        ("bias:0", Calibration("bias", 0.0)),
        ("bias:1e-3", Calibration("bias", 0.001)),
    ],
)
def test_a_calibration_is_read_from_text(text, calibration):
    assert Calibration.parse(text) == calibration


@pytest.mark.parametrize("text", ["none", "scale:0.95", "bias:1.25", "bias:-0.5", "bias:0.001"])
def test_a_calibration_is_written_as_it_was_read(text):
    assert str(Calibration.parse(text)) == text


@given(
    calibration=st.one_of(
        st.builds(Calibration, st.just("scale"), st.floats(1e-6, 1e6)),
        st.builds(Calibration, st.just("bias"), st.floats(-1e6, 1e6)),
        st.just(Calibration()),
    )
)
def test_reading_what_was_written_keeps_the_kind_and_six_digits(calibration):
    again = Calibration.parse(str(calibration))
    assert again.kind == calibration.kind
    assert again.value == pytest.approx(calibration.value, rel=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        *["", "none:1", "shift:1", "0.95", "bias", "bias:", "bias:inf", "bias:nan", "bias:abc"],
        *["scale", "scale:", "scale:0", "scale:-1", "scale:nan", "scale:inf", "scale:0.9:1", "Scale:0.9"],
    ],
)
def test_text_that_is_no_calibration_is_refused(text):
    with pytest.raises(ConfigError, match="is not understood; use"):
        Calibration.parse(text)


# Applying

MIXED = np.array([[2.0, -4.0, 1.0, -1.0]])
MIXED_SEEN = np.array([True, True, False, False])


def test_a_scale_multiplies_seen_scores_only():
    assert Calibration("scale", 0.5).apply(MIXED, MIXED_SEEN).tolist() == [[1.0, -2.0, 1.0, -1.0]]


def test_a_bias_is_subtracted_from_seen_scores_only():
    assert Calibration("bias", 0.5).apply(MIXED, MIXED_SEEN).tolist() == [[1.5, -4.5, 1.0, -1.0]]


def test_no_calibration_changes_nothing():
    assert Calibration().apply(MIXED, MIXED_SEEN).tolist() == MIXED.tolist()


@pytest.mark.parametrize("calibration", [Calibration(), Calibration("scale", 0.5), Calibration("bias", 0.5)], ids=str)
def test_applying_a_calibration_leaves_the_logits_alone(calibration):
    logits = MIXED.copy()
    calibration.apply(logits, MIXED_SEEN)[:] = 0
    assert logits.tolist() == MIXED.tolist()


@given(score=st.floats(-100, -0.01), scale=st.floats(0.1, 0.99))
def test_a_scale_below_1_raises_a_negative_score(score, scale):
    assert Calibration("scale", scale).apply([[score]], [True]).item() > score


@given(score=st.floats(-100, 100), bias=st.floats(0.01, 10))
def test_a_positive_bias_lowers_every_seen_score(score, bias):
    assert Calibration("bias", bias).apply([[score]], [True]).item() < score


# Scores from the best class of each side


@st.composite
def tied_cases(draw: st.DrawFn) -> Case:
    seen_mask = draw(st.lists(st.booleans(), min_size=1, max_size=5))
    labels = draw(st.lists(st.integers(0, len(seen_mask) - 1), min_size=1, max_size=10))
    row = st.lists(st.integers(-4, 4), min_size=len(seen_mask), max_size=len(seen_mask))
    logits = draw(st.lists(row, min_size=len(labels), max_size=len(labels)))
    return np.array(logits, dtype=float), np.array(labels), np.array(seen_mask)


CALIBRATIONS = st.sampled_from(
    [
        Calibration(),
        Calibration("scale", 0.5),
        Calibration("scale", 2.0),
        Calibration("bias", 1.0),
        Calibration("bias", -1.5),
    ]
)


@pytest.mark.parametrize("average", ["class", "sample"])
@given(case=tied_cases(), calibration=CALIBRATIONS)
def test_calibrated_scores_are_the_scores_of_calibrated_logits(average, case, calibration):
    logits, labels, seen_mask = case
    full = gzsl_scores(calibration.apply(logits, seen_mask), labels, seen_mask, average)
    expected = (full.unseen, full.seen, full.harmonic)
    assert calibrated_scores(best_seen_and_unseen(*case, average), calibration) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@SEEDS
def test_calibrated_scores_are_the_scores_of_calibrated_logits_of_any_precision(seed, dtype):
    logits, labels, seen_mask = random_case(seed)
    logits = logits.astype(dtype)
    for calibration in (Calibration("scale", 0.87), Calibration("bias", 1.31)):
        full = gzsl_scores(calibration.apply(logits, seen_mask), labels, seen_mask)
        scores = calibrated_scores(best_seen_and_unseen(logits, labels, seen_mask), calibration)
        assert scores == pytest.approx((full.unseen, full.seen, full.harmonic))


# Choosing


@SEEDS
def test_the_chosen_bias_is_as_good_as_any_of_a_dense_grid(seed):
    """There are candidates between any two neighbours of up to 200 turning points, so nothing better exists."""
    case = random_case(seed)
    _, harmonic = choose_calibration([best_seen_and_unseen(*case)], "bias")
    assert harmonic >= max(harmonic_by_argmax(case, Calibration("bias", b)) for b in np.linspace(-1, 4, 501)) - 1e-9


@pytest.mark.parametrize("seen_factor", [1.0, 5.0, 0.3])  # with the best scale near 0.9, 0.2 and 3
@SEEDS
def test_the_chosen_scale_is_as_good_as_any_of_a_dense_grid(seed, seen_factor):
    logits, labels, seen_mask = random_case(seed)
    case = np.where(seen_mask, seen_factor * logits, logits), labels, seen_mask
    _, harmonic = choose_calibration([best_seen_and_unseen(*case)], "scale")
    grid = np.linspace(0.6, 1.2, 601) / seen_factor
    assert harmonic >= max(harmonic_by_argmax(case, Calibration("scale", s)) for s in grid) - 1e-9


def test_the_chosen_scale_is_as_good_as_any_where_scores_are_negative():
    """A negative score rises when it is multiplied by less than 1: the best scale is above 1."""
    logits, labels, seen_mask = random_case(0)
    case = logits - 30, labels, seen_mask
    calibration, harmonic = choose_calibration([best_seen_and_unseen(*case)], "scale")
    assert calibration.value > 1
    best = max(harmonic_by_argmax(case, Calibration("scale", s)) for s in np.linspace(0.9, 1.4, 501))
    assert harmonic >= best - 1e-9


@pytest.mark.parametrize("kind", ["any", "scale", "bias", "grid"])
@SEEDS
def test_the_harmonic_mean_returned_is_that_of_the_calibration_chosen(seed, kind):
    case = random_case(seed)
    calibration, harmonic = choose_calibration([best_seen_and_unseen(*case)], kind)
    logits, labels, seen_mask = case
    assert gzsl_scores(calibration.apply(logits, seen_mask), labels, seen_mask).harmonic == pytest.approx(harmonic)


@pytest.mark.parametrize("kind", ["any", "scale", "bias", "grid"])
@SEEDS
def test_the_choice_is_no_worse_than_no_calibration(seed, kind):
    case = random_case(seed)
    assert choose_calibration([best_seen_and_unseen(*case)], kind)[1] >= gzsl_scores(*case).harmonic - 1e-9


@SEEDS
def test_any_is_as_good_as_the_better_of_scale_and_bias(seed):
    best_scores = [best_seen_and_unseen(*random_case(seed))]
    better = max(choose_calibration(best_scores, "scale")[1], choose_calibration(best_scores, "bias")[1])
    assert choose_calibration(best_scores, "any")[1] == pytest.approx(better)


def test_any_takes_the_bias_where_logits_are_of_either_sign():
    logits, labels, seen_mask = random_case(0)
    best_scores = [best_seen_and_unseen(logits - logits.mean(), labels, seen_mask)]
    assert choose_calibration(best_scores, "any")[0].kind == "bias"


@pytest.mark.parametrize("seed", range(8))
def test_grid_chooses_from_the_papers_five_scales(seed):
    logits, labels, seen_mask = random_case(seed)
    best_scores = [best_seen_and_unseen(logits + seed - 4, labels, seen_mask)]
    calibration, harmonic = choose_calibration(best_scores, "grid")
    scale = 1.0 if calibration == Calibration() else calibration.value
    assert scale in PAPER_SCALES and calibration.kind in ("scale", "none")
    assert harmonic == pytest.approx(
        max(calibrated_scores(best_scores[0], Calibration("scale", s))[2] for s in PAPER_SCALES)
    )


def test_the_papers_scales_are_those_of_its_table():
    assert PAPER_SCALES == (1.0, 0.95, 0.9, 0.85, 0.8)


@pytest.mark.parametrize("kind", ["scale", "bias", "any", "grid"])
def test_no_calibration_is_chosen_where_none_helps(kind):
    perfect = best_seen_and_unseen(10 * np.eye(4), [0, 1, 2, 3], [True, True, False, False])
    assert choose_calibration([perfect], kind) == (Calibration(), 100.0)


def test_of_equally_good_biases_one_from_the_middle_is_taken():
    """Unseen rows lose by 1, seen rows win by 3: every bias between is perfect."""
    logits = [[3.0, 0.0]] * 50 + [[1.0, 0.0]] * 50
    calibration, harmonic = choose_calibration(
        [best_seen_and_unseen(logits, [0] * 50 + [1] * 50, [True, False])], "bias"
    )
    assert harmonic == 100.0 and 1.0 <= calibration.value < 3.0


@SEEDS
def test_over_several_splits_the_average_harmonic_mean_is_the_best(seed):
    cases = [random_case(seed + 100 * split, n=50 + 10 * split) for split in range(3)]
    _, harmonic = choose_calibration([best_seen_and_unseen(*case) for case in cases], "bias")
    biases = [Calibration("bias", b) for b in np.linspace(-1, 4, 251)]
    brute_force = max(np.mean([harmonic_by_argmax(case, bias) for case in cases]) for bias in biases)
    assert harmonic >= brute_force - 1e-9


def test_every_split_counts_the_same_whatever_its_size():
    cases = [random_case(seed, n) for seed, n in [(0, 20), (1, 400)]]
    calibration, harmonic = choose_calibration([best_seen_and_unseen(*case) for case in cases], "any")
    assert harmonic == pytest.approx(np.mean([harmonic_by_argmax(case, calibration) for case in cases]))


@pytest.mark.parametrize("kind", ["any", "scale", "bias", "grid"])
@pytest.mark.parametrize("seen_mask", [[True, True], [False, False], [True, False]])
def test_without_rows_on_one_side_nothing_is_chosen(seen_mask, kind):
    calibration, harmonic = choose_calibration([best_seen_and_unseen([[1.0, 0.0]], [0], seen_mask)], kind)
    assert calibration == Calibration() and math.isnan(harmonic)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("kind", ["bias", "scale"])
def test_a_calibration_keeps_the_stated_share_of_seen_rows(kind, share):
    generator = np.random.default_rng(7)
    seen = np.arange(9) < 5
    labels = np.repeat(np.arange(5), 20)
    logits = generator.uniform(1, 2, (100, 9))
    logits[np.arange(100), labels] += 0.7
    calibration = keeping_calibration([best_seen_and_unseen(logits, labels, seen)], share, kind)
    assert calibration.kind == kind
    right = logits[:, seen].argmax(axis=1) == labels
    kept = calibration.apply(logits, seen).argmax(axis=1) == labels
    assert not kept[~right].any()
    assert kept[right].mean() == pytest.approx(share, abs=1.5 / right.sum())


def test_a_grid_keeps_at_least_the_stated_share_of_seen_rows():
    best_scores = best_seen_and_unseen([[1.0, 0.83], [1.0, 0.88], [1.0, 0.93]], [0, 0, 0], [True, False])
    assert keeping_calibration([best_scores], 0.5, "grid") == Calibration("scale", 0.9)
    assert keeping_calibration([best_scores], 1.0, "grid") == Calibration("scale", 0.95)


def test_without_rows_of_seen_classes_nothing_is_calibrated():
    best_scores = best_seen_and_unseen([[1.0, 2.0]], [1], [True, False])
    assert keeping_calibration([best_scores], 0.8) == Calibration()


@pytest.mark.parametrize("kind", ["scale", "bias"])
def test_the_values_of_a_curve_cover_no_calibration_and_the_chosen_one(kind):
    generator = np.random.default_rng(0)
    seen = np.arange(6) < 4
    best_scores = best_seen_and_unseen(generator.normal(size=(40, 6)), generator.integers(0, 6, 40), seen)
    neutral = 1.0 if kind == "scale" else 0.0
    plain = calibration_values([best_scores], kind, Calibration("none"))
    assert plain.min() <= neutral <= plain.max()
    assert (np.diff(plain) > 0).all() and len(plain) > 10
    margin = 0.1 if kind == "scale" else 0.0
    lower, higher = plain.min() - 0.2, plain.max() + 0.2
    assert calibration_values([best_scores], kind, Calibration(kind, lower)).min() == pytest.approx(
        lower - margin, abs=1e-4
    )
    assert calibration_values([best_scores], kind, Calibration(kind, higher)).max() == pytest.approx(
        higher + margin, abs=1e-4
    )


def test_predictions_under_a_calibration_are_the_best_classes_of_calibrated_logits():
    logits = np.random.default_rng(0).normal(size=(40, 6))
    seen, calibration = np.arange(6) % 2 == 0, Calibration("bias", 0.7)
    best_scores = best_seen_and_unseen(logits, np.zeros(40, dtype=int), seen)
    expected = calibration.apply(logits, seen).argmax(axis=1)
    assert (expected != logits.argmax(axis=1)).sum() > 0
    np.testing.assert_array_equal(calibrated_predictions(best_scores, calibration), expected)


def test_no_calibration_is_written_without_a_value():
    assert (Calibration().value, str(Calibration())) == (0.0, "none")
