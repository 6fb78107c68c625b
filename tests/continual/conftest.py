"""A small stream that a small learner goes through in a fraction of a second, and a strategy standing before it."""

import dataclasses

import pytest
import torch

from classnorm.continual import STRATEGIES, FeatureInputs, TaskStream, configure
from classnorm.continual.strategies import StreamProblem
from classnorm.data import SyntheticConfig, synthetic

CPU = torch.device("cpu")
# The plain learner starts with long prototypes, which a small learning rate hardly turns.
FAST = {"hidden": 32, "epochs": 4, "lr": 0.02, "batch_size": 16, "importance_batch": 8, "memory_batch": 20}


@pytest.fixture(scope="session")
def dataset():
    return synthetic(SyntheticConfig(classes=12, unseen=3, rows=360, features=16, attributes=10, noise=0.5))


@pytest.fixture(scope="session")
def stream(dataset):
    return TaskStream.make(dataset, 3, seed=1)


@pytest.fixture(scope="session")
def fast(stream):
    """Settings that make a run short; a strategy takes those that it has."""

    def config(name, **changes):
        names = {field.name for field in dataclasses.fields(STRATEGIES[name].Config)}
        return configure(stream, name, **({key: value for key, value in FAST.items() if key in names} | changes))

    return config


@pytest.fixture
def before(stream, fast):
    """A strategy with an untrained learner, as it stands before the first task."""

    def build(name, **changes):
        config = fast(name, **changes)
        learner = STRATEGIES[name].new_learner(config, stream.dataset.d_a, stream.dataset.d_z, 0, None)
        problem = StreamProblem.of(stream, learner, FeatureInputs.of(stream.dataset, CPU), 0, CPU)
        return STRATEGIES[name](problem, config)

    return build
