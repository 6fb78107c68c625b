"""The paired bootstrap over classes, against a slow one that follows the words."""

import numpy as np
import pytest

from classnorm.metrics.bootstrap import class_bootstrap


def _by_hand(first, second, seen, resamples, seed):
    """Draw class numbers one resample at a time, average by loops, and take quantiles of the differences."""
    generator = np.random.default_rng(seed)
    sides = [np.flatnonzero(~seen), np.flatnonzero(seen)]
    differences = {"unseen": [], "seen": [], "harmonic": []}
    for _ in range(resamples):
        drawn = [generator.choice(side, size=len(side)) for side in sides]
        scores = []
        for table in (first, second):
            runs = [[np.mean([row[c] for c in classes]) for classes in drawn] for row in table]
            u, s = (np.mean([run[i] for run in runs]) for i in (0, 1))
            scores.append((u, s, np.mean([2 * u * s / (u + s) for u, s in runs])))
        for name, one, other in zip(differences, *scores, strict=True):
            differences[name].append(one - other)
    return {name: np.quantile(values, [0.025, 0.975]) for name, values in differences.items()}


@pytest.fixture
def tables():
    generator = np.random.default_rng(3)
    seen = np.arange(40) % 4 > 0
    easy = generator.uniform(20, 80, 40)  # some classes are easy for both models
    first = np.clip(easy + 5 + generator.normal(0, 8, (3, 40)), 0, 100)
    second = np.clip(easy + generator.normal(0, 8, (2, 40)), 0, 100)
    return first, second, seen


def test_the_intervals_are_those_of_a_slow_resampling_by_hand(tables):
    fast = class_bootstrap(*tables, resamples=6000, seed=1)
    slow = _by_hand(*tables, resamples=1500, seed=2)
    for name, (low, high) in slow.items():
        assert fast[name].low == pytest.approx(low, abs=0.12 * (high - low))
        assert fast[name].high == pytest.approx(high, abs=0.12 * (high - low))


def test_the_difference_is_that_of_the_scores_averaged_over_seeds(tables):
    first, second, seen = tables

    def harmonic(table):
        u, s = table[:, ~seen].mean(axis=1), table[:, seen].mean(axis=1)
        return float(np.mean(2 / (1 / u + 1 / s)))

    result = class_bootstrap(*tables)
    assert result["unseen"].value == pytest.approx(first[:, ~seen].mean() - second[:, ~seen].mean())
    assert result["harmonic"].value == pytest.approx(harmonic(first) - harmonic(second))


def test_pairing_takes_out_what_both_models_share(tables):
    """The classes differ by 60 points, the models by 5: without pairing, the classes would drown the models."""
    first, second, seen = tables
    paired = class_bootstrap(first, second, seen)["seen"]
    shuffled = class_bootstrap(first, np.random.default_rng(0).permutation(second, axis=1), seen)["seen"]
    assert paired.high - paired.low < 0.6 * (shuffled.high - shuffled.low)


def test_the_same_seed_gives_the_same_interval_and_swapped_models_the_mirrored_one(tables):
    first, second, seen = tables
    result, again, swapped = (class_bootstrap(*t) for t in (tables, tables, (second, first, seen)))
    assert result == again
    assert swapped["harmonic"].low == pytest.approx(-result["harmonic"].high)


def test_classes_without_rows_are_left_out_and_a_side_without_classes_is_undefined():
    nan = float("nan")
    seen = np.array([True, False, False])
    result = class_bootstrap([[50.0, 40.0, nan]], [[50.0, 10.0, nan]], seen)
    assert result["unseen"].value == pytest.approx(30.0)
    result = class_bootstrap([[50.0, nan, nan]], [[20.0, nan, nan]], seen)
    assert result["seen"].value == pytest.approx(30.0)
    assert np.isnan([result["unseen"].value, result["harmonic"].low]).all()


def test_tables_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"\[n_seeds, 2\]"):
        class_bootstrap([[1.0, 2.0, 3.0]], [[1.0, 2.0]], [True, False])


def test_models_that_get_nothing_right_have_a_harmonic_mean_of_0():
    differences = class_bootstrap(np.full((1, 2), 50.0), np.zeros((1, 2)), [True, False])
    assert differences["harmonic"].value == 50.0
