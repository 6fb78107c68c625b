"""A small stream, fast settings, and strategies before their first task."""

import dataclasses

import numpy as np
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
def blinded(stream, dataset):
    """The stream with noise for the last task; its rows and columns of logits that must stay the same after task 2."""
    generator = np.random.default_rng(0)
    features, descriptors = dataset.features.copy(), dataset.descriptors.copy()
    last = np.isin(dataset.labels, stream.tasks[2])
    features[last] = generator.random((last.sum(), dataset.d_z))
    descriptors[stream.tasks[2]] = generator.random((4, dataset.d_a)) + 1
    blind = dataclasses.replace(
        stream, dataset=dataclasses.replace(dataset, features=features, descriptors=descriptors)
    )
    return blind, ~last[stream.test_rows], np.concatenate(stream.tasks[:2])


@pytest.fixture(scope="session")
def fast(stream):
    """Settings that make a run short; a strategy takes those that it has."""

    def config(name, **changes):
        names = {field.name for field in dataclasses.fields(STRATEGIES[name].Config)}
        return configure(stream, name, **({key: value for key, value in FAST.items() if key in names} | changes))

    return config


@pytest.fixture
def strategy_of(fast):
    """A strategy with an untrained learner, as it stands before the first task of a stream."""

    def build(stream, name, **changes):
        config = fast(name, **changes)
        learner = STRATEGIES[name].new_learner(config, stream.dataset.d_a, stream.dataset.d_z, 0, None)
        problem = StreamProblem.of(stream, learner, FeatureInputs.of(stream.dataset, CPU), 0, CPU)
        return STRATEGIES[name](problem, config)

    return build


@pytest.fixture
def before(stream, strategy_of):
    """The same for the small stream."""
    return lambda name, **changes: strategy_of(stream, name, **changes)
