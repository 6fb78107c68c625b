"""A small dataset that a small model learns in a second."""

import pytest

from classnorm.data import SyntheticConfig, synthetic

SMALL = {"hidden": 64, "epochs": 8, "lr": 3e-3}


@pytest.fixture(scope="session")
def small_dataset():
    return synthetic(SyntheticConfig(classes=40, unseen=10, rows=2000, features=64, attributes=30, noise=0.7))


@pytest.fixture
def small():
    return dict(SMALL)
