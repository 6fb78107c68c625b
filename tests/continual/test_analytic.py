"""Analytic: after every task the model that a joint fit on all rows so far gives, whatever the order."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from classnorm import fit
from classnorm.continual import TaskStream, configure, run_stream
from classnorm.data import SyntheticConfig, ZeroShotDataset, synthetic
from classnorm.errors import ConfigError
from classnorm.metrics import continual_scores

SETTINGS = {"dimensions": 12, "ridge": 0.2, "length": 1.1}


def joint(stream, tasks, **settings):
    """The method `kernel`, in closed form, fitted on all training rows of the first tasks at once."""
    data = stream.dataset
    rows = np.sort(np.concatenate([stream.train(t) for t in range(tasks)]))
    others = np.setdiff1d(np.arange(data.n_rows), rows)
    seen = np.isin(data.labels[others], data.labels[rows])
    parts = {"train": rows, "test_seen": others[seen], "test_unseen": others[~seen]}
    dataset = ZeroShotDataset.from_arrays(data.features, data.labels, data.descriptors, data.class_names, **parts)
    settings = {"recipe": "earlier", "closed_form": True, **settings}
    scorer = fit(dataset, method="kernel", calibration="none", seed=0, **settings)
    return scorer.scores(data.features[stream.test_rows])


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_it_equals_a_joint_fit_on_all_rows_so_far(stream, tasks):
    history = run_stream(stream, "analytic", configure(stream, "analytic", **SETTINGS)).history
    np.testing.assert_allclose(history[tasks], joint(stream, tasks, **SETTINGS), atol=1e-4)


def test_features_of_several_encoders_have_a_geometry_each(dataset):
    recorded = replace(dataset, provenance=dataset.provenance | {"feature_blocks": "10,6"})
    stream = TaskStream.make(recorded, 3, seed=1)
    config = configure(stream, "analytic", **SETTINGS)
    assert config.feature_blocks == "10,6"
    history = run_stream(stream, "analytic", config).history
    np.testing.assert_allclose(history[2], joint(stream, 2, feature_blocks="10,6", **SETTINGS), atol=1e-4)
    one = run_stream(stream, "analytic", replace(config, feature_blocks="")).history
    assert np.abs(one[2] - history[2]).max() > 0.1
    first = run_stream(stream, "analytic", replace(config, feature_weights="1,0")).history
    alone = TaskStream.make(replace(dataset, features=dataset.features[:, :10]), 3, seed=1)
    np.testing.assert_allclose(
        first[2], run_stream(alone, "analytic", replace(config, feature_blocks="")).history[2], atol=1e-3
    )
    with pytest.raises(ConfigError, match="feature_weights is '1'; give a number from 0 for each of the 2 parts"):
        run_stream(stream, "analytic", replace(config, feature_weights="1"))


def test_with_fewer_landmarks_than_classes_it_still_does(stream):
    config = configure(stream, "analytic", landmarks=5, **SETTINGS)
    np.testing.assert_allclose(
        run_stream(stream, "analytic", config).history[3], joint(stream, 3, landmarks=5, **SETTINGS), atol=1e-4
    )


def test_the_order_of_the_tasks_does_not_matter_in_the_end(stream):
    turned = replace(stream, tasks=stream.tasks[::-1])
    one, other = (run_stream(s, "analytic").history[-1] for s in (stream, turned))
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_before_the_first_task_it_knows_nothing(stream):
    assert not run_stream(stream, "analytic").history[0].any()


def test_it_learns_and_hardly_forgets(stream):
    scores = continual_scores(run_stream(stream, "analytic").history, stream.test_labels, stream.tasks)
    assert scores.mSA > 50 and scores.forgetting < 0.1  # chance is 8 %


def test_later_tasks_have_no_effect(stream, blinded):
    blind, rows, columns = blinded
    one, other = (run_stream(s, "analytic").history[2] for s in (stream, blind))
    np.testing.assert_allclose(one[rows][:, columns], other[rows][:, columns], atol=1e-4)


def test_it_keeps_sums_and_no_row(before):
    strategy = before("analytic")
    for task in range(2):
        strategy.learn(task)
    shapes = {name: list(value.shape) for name, value in strategy.state().items()}
    assert shapes == {"counts": [12], "sums": [12, 16], "products": [16, 16]}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_killed_run_resumes_to_the_same_bits(stream, tmp_path, watching, at):
    class Killed(Exception):
        pass

    def kill(_, step):
        if step.done == at:
            raise Killed

    whole = run_stream(stream, "analytic")
    with pytest.raises(Killed), watching(kill):
        run_stream(stream, "analytic", folder=tmp_path)
    resumed = run_stream(stream, "analytic", folder=tmp_path, resume=True)
    assert all(np.array_equal(a, b) for a, b in zip(whole.history, resumed.history, strict=True))
    assert resumed.losses == whole.losses
    weights = resumed.learner.state_dict()
    assert all(torch.equal(weights[key], value) for key, value in whole.learner.state_dict().items())
    again = run_stream(stream, "analytic", folder=tmp_path, resume=True)  # finished: read back
    assert np.array_equal(again.history[-1], whole.history[-1])


@pytest.mark.parametrize("name", ["analytic", "sequential"])
def test_a_bias_is_subtracted_from_the_cosines_of_seen_classes_and_areas_are_blind_to_it(stream, name):
    plain, biased = (run_stream(stream, name, configure(stream, name, bias=bias)) for bias in (0.0, 0.1))
    for t in range(4):
        seen = np.isin(np.arange(12), np.concatenate([[], *stream.tasks[:t]]))
        change = (plain.history[t] - biased.history[t]) / plain.learner.scale
        np.testing.assert_allclose(change, np.broadcast_to(np.where(seen, 0.1, 0.0), change.shape), atol=1e-5)
    one, other = (continual_scores(r.history, stream.test_labels, stream.tasks) for r in (plain, biased))
    assert one.mAUC == pytest.approx(other.mAUC, abs=0.2)
    assert one.mUA < other.mUA and one.mSA > other.mSA


def test_an_encoder_is_refused(stream):
    with pytest.raises(ConfigError, match="learns from features"):
        run_stream(stream, "analytic", encoder=nn.Linear(16, 16))


def test_a_first_task_with_rows_of_one_class_only_is_refused():
    data = synthetic(SyntheticConfig(classes=4, unseen=1, rows=40, features=8))
    keep = data.labels != 0
    parts = {"train": np.arange(keep.sum())}
    bare = ZeroShotDataset.from_arrays(
        data.features[keep], data.labels[keep], data.descriptors, data.class_names, **parts
    )
    stream = replace(TaskStream.make(bare, 2), tasks=(np.array([0, 1]), np.array([2, 3])))
    with pytest.raises(ConfigError, match="training rows of 1 class"):
        run_stream(stream, "analytic")


@pytest.mark.parametrize("bad", [{"power": 0.0}, {"ridge": -1.0}, {"dimensions": 0}, {"bias": float("nan")}])
def test_impossible_settings_are_refused(stream, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        run_stream(stream, "analytic", configure(stream, "analytic", **bad))
