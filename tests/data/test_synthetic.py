"""Synthetic data: the sizes that were asked for, attributes like real ones, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import skew

from classnorm.data import SyntheticConfig, synthetic
from classnorm.errors import ConfigError


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 20), st.integers(0, 8), st.integers(2, 12), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4)
)
def test_sizes_are_as_asked(seen, unseen, each, features, attributes, factors):
    classes = seen + unseen
    config = SyntheticConfig(classes, unseen, classes * each, features, attributes, factors)
    sizes = synthetic(config).sizes
    assert (sizes["classes"], sizes["unseen_classes"], sizes["rows"]) == (classes, unseen, classes * each)
    assert (sizes["feature_dim"], sizes["descriptor_dim"]) == (features, attributes)


def test_every_row_is_in_exactly_one_part():
    data = synthetic(SyntheticConfig(classes=20, unseen=5, rows=333, features=8))
    used = np.concatenate([data.split.train, data.split.test_seen, data.split.test_unseen])
    assert sorted(used) == list(range(333))


def test_a_fifth_of_the_seen_rows_is_for_the_test():
    data = synthetic(SyntheticConfig(classes=20, unseen=5, rows=1000, features=8))
    assert len(data.split.test_seen) == (len(data.split.test_seen) + len(data.split.train)) / 5


def test_the_only_notice_is_that_features_are_simulated():
    [notice] = synthetic(SyntheticConfig(classes=20, unseen=5, rows=40, features=8)).notices
    assert "simulated" in notice


def test_the_same_seed_gives_the_same_data():
    config = SyntheticConfig(classes=20, unseen=5, rows=200, features=16, seed=3)
    assert synthetic(config).checksum == synthetic(config).checksum


def test_another_seed_gives_other_data():
    checksums = {synthetic(SyntheticConfig(20, 5, 200, 16, seed=seed)).checksum for seed in range(4)}
    assert len(checksums) == 4


def test_features_are_non_negative():
    assert synthetic(SyntheticConfig(classes=20, unseen=5, rows=200, features=16)).features.min() >= 0


def test_attributes_are_skewed():
    assert skew(synthetic().descriptors, axis=0).mean() > 0.5


def mean_correlation(table: np.ndarray) -> float:
    correlations = np.corrcoef(table, rowvar=False)
    return float(np.abs(correlations[np.triu_indices(len(correlations), 1)]).mean())


def test_attributes_are_correlated_far_above_independent_columns():
    table = synthetic().descriptors.astype(np.float64)
    generator = np.random.default_rng(0)
    independent = np.stack([generator.permutation(column) for column in table.T], axis=1)
    assert mean_correlation(table) > 2 * mean_correlation(independent)


def test_fewer_factors_make_attributes_more_correlated():
    few, many = (synthetic(SyntheticConfig(features=4, rows=400, factors=n)).descriptors for n in (2, 50))
    assert mean_correlation(few) > mean_correlation(many)


def test_less_noise_makes_rows_of_a_class_more_alike():
    def spread(noise: float) -> float:
        data = synthetic(SyntheticConfig(classes=10, unseen=2, rows=200, features=32, noise=noise))
        return float(np.mean([data.features[data.labels == c].std(axis=0).mean() for c in range(10)]))

    assert spread(0.0) < 1e-6 < spread(0.3) < spread(1.0)


def test_a_text_names_sizes_and_leaves_the_rest():
    parsed = SyntheticConfig.parse("unseen=30,noise=0.5,seed=7")
    assert parsed == SyntheticConfig(unseen=30, noise=0.5, seed=7)


def test_an_empty_text_is_the_default():
    assert SyntheticConfig.parse("") == SyntheticConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clases=3", "unknown setting of synthetic 'clases'; did you mean 'classes'"),
        ("classes=many", "classes must be a number, not 'many'"),
        ("classes=2.5", "classes must be a number, not '2.5'"),
        ("classes", "classes must be a number, not ''"),
        ("classes=", "classes must be a number, not ''"),
        ("noise=loud", "noise must be a number, not 'loud'"),
    ],
)
def test_a_text_that_is_not_understood_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        SyntheticConfig.parse(text)


@pytest.mark.parametrize(
    "sizes",
    [
        {"classes": 10, "unseen": 9, "rows": 100},
        {"classes": 10, "unseen": -1, "rows": 100},
        {"classes": 10, "unseen": 2, "rows": 19},
        {"features": 0},
        {"attributes": 0},
        {"factors": 0},
        {"noise": -1.0},
        {"noise": float("nan")},
        {"noise": float("inf")},
        {"seed": -1},
    ],
    ids=str,
)
def test_sizes_that_cannot_be_are_refused(sizes):
    with pytest.raises(ConfigError, match=r"synthetic: |seed"):
        synthetic(SyntheticConfig(**sizes))
