"""RanPAC and ACIL: after every task the regression on all rows so far, whatever the order."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from classnorm.continual import configure, run_stream
from classnorm.errors import ConfigError
from classnorm.metrics import continual_scores

SETTINGS = {"expansion": 64, "ridge": 0.5}
each = pytest.mark.parametrize("name", ["ranpac", "acil"])


def run(stream, name, **options):
    return run_stream(stream, name, configure(stream, name, **SETTINGS), **options)


def normalized(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def transformed(descriptors, seen):
    """Descriptors as the kernel places them: a power, centred, divided by a power of the deviation, of unit length."""
    powered = np.sign(descriptors) * np.abs(descriptors) ** 0.6
    return normalized((powered - powered[seen].mean(0)) / powered[seen].std(0, ddof=1) ** 0.25)


def joint(stream, name, tasks, projection):
    """The scores of a regression on all rows of the first tasks at once, in NumPy and float64."""
    data = stream.dataset
    rows = np.concatenate([stream.train(t) for t in range(tasks)])
    seen = np.unique(data.labels[rows])
    hidden = np.maximum(normalized(data.features.astype(np.float64)) @ projection, 0)
    gram = hidden[rows].T @ hidden[rows]
    solve = np.linalg.inv(gram + 0.5 * np.trace(gram) / len(gram) * np.eye(len(gram)))
    codes = transformed(data.descriptors.astype(np.float64), seen)
    test = hidden[stream.test_rows]
    if name == "acil":
        return normalized(test @ solve @ hidden[rows].T @ codes[data.labels[rows]]) @ codes.T
    means = np.stack([hidden[rows][data.labels[rows] == c].mean(0) for c in seen])
    squared = ((codes[:, None] - codes[seen][None]) ** 2).sum(-1)
    pairs = np.sort(squared[seen][np.triu_indices(len(seen), 1)])
    kernel = np.exp(-squared / (2 * pairs[(len(pairs) - 1) // 2]))
    predicted = kernel @ np.linalg.solve(kernel[seen] + 0.1 * np.eye(len(seen)), means)
    lengths = [np.sqrt((x @ solve * x).sum(axis=1)) for x in (test, predicted)]
    return test @ solve @ predicted.T / np.outer(*lengths)


@each
@pytest.mark.parametrize("tasks", [1, 3])
def test_it_equals_a_regression_on_all_rows_so_far(stream, name, tasks):
    result = run(stream, name)
    expected = joint(stream, name, tasks, result.learner.projection.double().numpy())
    np.testing.assert_allclose(result.history[tasks], expected, atol=2e-3)


@each
def test_the_order_of_the_tasks_does_not_matter_in_the_end(stream, name):
    one, other = (run(s, name).history[-1] for s in (stream, replace(stream, tasks=stream.tasks[::-1])))
    np.testing.assert_allclose(one, other, atol=1e-4)


@each
def test_later_tasks_have_no_effect(stream, blinded, name):
    blind, rows, columns = blinded
    one, other = (run(s, name).history[2] for s in (stream, blind))
    np.testing.assert_allclose(one[rows][:, columns], other[rows][:, columns], atol=1e-4)


@each
def test_it_knows_nothing_before_the_first_task_and_learns(stream, name):
    history = run(stream, name).history
    assert not history[0].any()
    assert continual_scores(history, stream.test_labels, stream.tasks).mSA > 40  # chance is 8 %


@each
@pytest.mark.parametrize("at", [1, 3])
def test_a_killed_run_resumes_to_the_same_bits(stream, tmp_path, watching, name, at):
    class Killed(Exception):
        pass

    def kill(_, step):
        if step.done == at:
            raise Killed

    whole = run(stream, name)
    with pytest.raises(Killed), watching(kill):
        run(stream, name, folder=tmp_path)
    resumed = run(stream, name, folder=tmp_path, resume=True)
    assert all(np.array_equal(a, b) for a, b in zip(whole.history, resumed.history, strict=True))
    weights = resumed.learner.state_dict()
    assert all(torch.equal(weights[key], value) for key, value in whole.learner.state_dict().items())


@each
def test_an_encoder_is_refused(stream, name):
    with pytest.raises(ConfigError, match="learns from features"):
        run(stream, name, encoder=nn.Linear(16, 16))
