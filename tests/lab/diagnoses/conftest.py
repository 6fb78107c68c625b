"""A dataset small enough to train on in a moment."""

import pytest

from classnorm.data import SyntheticConfig, synthetic


@pytest.fixture(scope="session")
def tiny():
    return synthetic(SyntheticConfig(classes=24, unseen=6, rows=720, features=16, attributes=12, noise=0.5))
