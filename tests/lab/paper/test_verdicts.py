"""The rule that decides whether a claim holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from classnorm.results.numbers import signed
from classnorm_lab.paper.verdicts import PairedDifference, judge_bounds, judge_difference


@pytest.mark.parametrize(
    ("better", "worse", "margin", "verdict"),
    [
        ([55, 56, 57], [50, 51, 52], 2, "holds"),
        ([52, 53], [50, 51], 2, "holds"),  # just the margin
        ([51, 52], [50, 51], 2, "holds weakly"),  # every seed, by less than the margin
        ([60, 50], [50, 50], 2, "holds weakly"),  # by more than the margin, a tie with one seed
        ([53, 54, 59], [50, 51, 51], 2, "holds weakly"),  # with every seed, but the interval includes 0
        ([53, 54, 55], [50, 51, 51], 2, "holds"),
        ([60, 49], [50, 50], 2, "holds weakly"),  # not with every seed
        ([50, 50], [50, 50], 0, "does not hold"),  # no difference is none, whatever the margin
        ([49, 51], [50, 50], 0, "does not hold"),
        ([48], [50], 2, "does not hold"),
        ([60], [50], 0, "holds weakly"),  # one seed has no interval
        ([0, 0], [0, 0], 10, "does not hold"),  # both diverged
        ([30, 30], [0, 0], 10, "holds"),  # the worse one diverged
        ([math.nan, 50], [40, 40], 1, "not measured"),
        ([math.nan], [math.nan], 1, "not measured"),
    ],
)
def test_a_difference_is_judged_seed_by_seed(better, worse, margin, verdict):
    assert judge_difference(better, worse, margin) == verdict


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=10))
def test_the_interval_is_that_of_a_paired_test(differences):
    other = [40.0 + i for i in range(len(differences))]
    better = [a + b for a, b in zip(other, differences, strict=True)]
    found = PairedDifference.of(better, other)
    assert found.mean == pytest.approx(np.mean(differences), abs=1e-9)
    if np.ptp(differences) > 1e-6:
        expected = stats.ttest_rel(better, other).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)


def test_seeds_must_pair():
    with pytest.raises(ValueError):
        judge_difference([1, 2, 3], [1, 2], 1)


@pytest.mark.parametrize(
    ("values", "low", "high", "verdict"),
    [
        ([0.1, 10.0], 0.1, 10.0, "holds"),  # the bounds belong to it
        ([0.05, 2.0], 0.1, 10.0, "holds weakly"),
        ([0.01], 0.1, 10.0, "does not hold"),
        ([20.0, 0.0], 0.1, 10.0, "holds weakly"),
        ([30.0, 0.5], 0.1, 10.0, "does not hold"),
        ([1e300], 0.1, math.inf, "holds"),
        ([-1e300], -math.inf, 60.0, "holds"),
    ],
)
def test_a_size_is_judged_by_its_bounds(values, low, high, verdict):
    assert judge_bounds(values, low, high) == verdict


def test_one_bound_is_enough():
    assert judge_bounds([59.0, 60.0], high=60.0) == "holds"
    assert judge_bounds([0.4, 0.5], low=0.5) == "does not hold"


@pytest.mark.parametrize(("value", "text"), [(2.26, "+2.3"), (-0.44, "−0.4"), (0.0, "0.0")])
def test_differences_carry_their_sign(value, text):
    assert signed(value) == text
