"""A small dataset for streams, and continual experiments on it that take a fraction of a second."""

import pytest

from classnorm.continual import TaskStream, configure
from classnorm.data import SyntheticConfig, synthetic
from classnorm.runs.streams import ContinualExperiment


@pytest.fixture(scope="session")
def data():
    return synthetic(SyntheticConfig(classes=16, unseen=4, rows=320, features=16, attributes=12, noise=0.5))


@pytest.fixture(scope="session")
def experiment(data):
    def build(strategy="sequential", **changes):
        config = configure(TaskStream.make(data, 5), strategy, epochs=1, hidden=16, **changes)
        return ContinualExperiment(data, strategy, config, seed=1, tasks=5)

    return build
