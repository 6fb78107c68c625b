"""Quantiles over classes, and the nonconformity score of a class."""

import numpy as np
import pytest
from scipy.special import log_softmax

from classnorm.metrics import class_quantiles, nonconformity


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
