"""Runs through a stream: what is learnt, what is recorded, what a killed run goes on to."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from classnorm.continual import STRATEGIES, ContinualConfig, TaskStream, configure, run_stream
from classnorm.continual.strategies import GradientStrategy
from classnorm.errors import ConfigError, ModelError, TrainingError
from classnorm.metrics import continual_scores

GRADIENT = [name for name, strategy in STRATEGIES.items() if issubclass(strategy, GradientStrategy)]
each_strategy = pytest.mark.parametrize("name", GRADIENT)


class Killed(Exception):
    """Stands for the process being killed in the middle of a run."""


def kill_at(task, epoch):
    def on_progress(_, step):
        if step.done == (task - 1) * step.total // 3 + epoch:  # of 3 tasks
            raise Killed

    return on_progress


def same(one, other):
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@each_strategy
@pytest.mark.parametrize("class_norm", [True, False])
def test_every_strategy_learns_with_and_without_class_norm(stream, fast, name, class_norm):
    result = run_stream(stream, name, fast(name, class_norm=class_norm))
    assert len(result.history) == 4
    assert all(logits.shape == (len(stream.test_rows), 12) for logits in result.history)
    scores = continual_scores(result.history, stream.test_labels, stream.tasks)
    assert scores.mSA > 25 and scores.per_task[-1]["joint"] > 25  # chance is 8 %


@each_strategy
def test_the_same_seed_gives_the_same_logits_and_another_seed_others(stream, fast, name):
    one, again, other = (run_stream(stream, name, fast(name, epochs=1), seed=seed).history for seed in (0, 0, 1))
    assert same(one, again)
    assert not same(one, other)


@each_strategy
def test_a_killed_run_resumes_to_the_same_logits(stream, fast, name, tmp_path, watching):
    config = fast(name, epochs=2)
    whole = run_stream(stream, name, config)
    for at in ((1, 2), (2, 1), (3, 2)):
        with pytest.raises(Killed), watching(kill_at(*at)):
            run_stream(stream, name, config, folder=tmp_path, resume=True)
    steps = []
    with watching(lambda _, step: steps.append((step.done, step.total))):
        resumed = run_stream(stream, name, config, folder=tmp_path, resume=True)
    assert steps == [(5, 6), (6, 6)]  # both epochs of the last of 3 tasks
    assert same(whole.history, resumed.history)
    assert resumed.losses == whole.losses and resumed.rows == whole.rows
    weights = resumed.learner.state_dict()
    assert all(torch.equal(weights[key], value) for key, value in whole.learner.state_dict().items())


def test_a_finished_run_is_read_back(stream, fast, tmp_path, watching):
    first = run_stream(stream, "sequential", fast("sequential"), folder=tmp_path)
    with watching(kill_at(1, 1)):
        again = run_stream(stream, "sequential", fast("sequential"), folder=tmp_path, resume=True)
    assert same(first.history, again.history)
    assert again.train_seconds == first.train_seconds


def test_without_resume_a_run_starts_afresh_and_replaces_another(stream, fast, tmp_path, watching):
    run_stream(stream, "sequential", fast("sequential"), folder=tmp_path)
    with pytest.raises(Killed), watching(kill_at(2, 1)):
        run_stream(stream, "sequential", fast("sequential"), 1, folder=tmp_path)
    resumed = run_stream(stream, "sequential", fast("sequential"), 1, folder=tmp_path, resume=True)
    assert same(resumed.history, run_stream(stream, "sequential", fast("sequential"), 1).history)


def test_another_run_or_a_damaged_one_is_not_resumed(stream, fast, tmp_path):
    config = fast("sequential", epochs=1)
    run_stream(stream, "sequential", config, folder=tmp_path)
    for change in ({"seed": 1}, {"config": replace(config, lr=0.1)}, {"stream": stream.part(1)}):
        arguments = {"stream": stream, "config": config} | change
        with pytest.raises(ConfigError, match="belongs to a run with other data, settings or seed"):
            run_stream(strategy="sequential", folder=tmp_path, resume=True, **arguments)
    (tmp_path / "logits-01.npy").unlink()
    with pytest.raises(ModelError, match="not a readable checkpoint; delete it"):
        run_stream(stream, "sequential", config, folder=tmp_path, resume=True)


@pytest.mark.parametrize("name", ["multitask", "agem", "replay", "ewc", "mas", "lwf"])
def test_with_one_task_every_strategy_is_sequential(dataset, fast, name):
    stream = TaskStream.make(dataset, 1)
    assert same(
        run_stream(stream, "sequential", fast("sequential")).history, run_stream(stream, name, fast(name)).history
    )


def test_later_tasks_have_no_effect(stream, fast, blinded):
    blind, rows, columns = blinded
    for name in GRADIENT:
        one, other = (run_stream(s, name, fast(name, epochs=1)).history[2] for s in (stream, blind))
        np.testing.assert_allclose(one[rows][:, columns], other[rows][:, columns], rtol=1e-5, atol=1e-5)


def test_the_recorded_logits_are_those_of_the_learner(stream, fast, dataset):
    result = run_stream(stream, "sequential", fast("sequential"))
    learner = result.learner
    with torch.no_grad():
        prototypes = learner.prototypes(torch.from_numpy(dataset.descriptors))
        logits = learner.logits(torch.from_numpy(dataset.features[stream.test_rows]), prototypes)
    np.testing.assert_allclose(result.history[-1], logits, rtol=1e-4, atol=1e-4)


def test_a_part_of_a_stream_runs_in_its_own_label_space(stream, fast):
    part = stream.part(1)
    result = run_stream(part, "sequential", fast("sequential"))
    assert result.history[0].shape == (len(part.test_rows), 8)
    assert continual_scores(result.history, part.test_labels, part.tasks).mSA > 25


def test_the_learning_rate_falls_after_each_task(stream, fast):
    """With a factor of almost nothing, later tasks change nothing."""
    config = fast("sequential", lr_decay=1e-9, class_norm=False)
    history = run_stream(stream, "sequential", config).history
    assert not np.allclose(history[0], history[1], atol=0.1)
    np.testing.assert_allclose(history[1], history[3], atol=1e-4)


class Squares:
    """The features in another shape, as images would be."""

    def __init__(self, dataset):
        self.values = torch.from_numpy(dataset.features.astype(np.float32)).reshape(dataset.n_rows, 4, 4)

    def __len__(self):
        return len(self.values)

    def batch(self, rows):
        return self.values[rows]


def small_encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU())


@each_strategy
def test_an_encoder_is_trained_along_and_resumes(stream, fast, dataset, name, tmp_path, watching):
    encoder, config = small_encoder(), fast(name, epochs=1)
    settings = {"encoder": encoder, "inputs": Squares(dataset)}
    whole = run_stream(stream, name, config, **settings)
    assert torch.equal(encoder[1].weight, small_encoder()[1].weight)  # the one given stays as it is
    assert not torch.equal(encoder[1].weight, whole.learner.encoder[1].weight)
    assert torch.equal(encoder[2].running_mean, whole.learner.encoder[2].running_mean)
    with pytest.raises(Killed), watching(kill_at(3, 1)):
        run_stream(stream, name, config, folder=tmp_path, **settings)
    assert same(whole.history, run_stream(stream, name, config, folder=tmp_path, resume=True, **settings).history)


def test_the_encoder_has_a_learning_rate_of_its_own(stream, fast, dataset):
    encoder = small_encoder()
    result = run_stream(
        stream, "sequential", fast("sequential", encoder_lr=0.0), encoder=encoder, inputs=Squares(dataset)
    )
    assert torch.equal(encoder[1].weight, result.learner.encoder[1].weight)


def test_a_frozen_encoder_stays_as_it_is(stream, fast, dataset):
    encoder = small_encoder().requires_grad_(False)
    result = run_stream(stream, "ewc", fast("ewc"), encoder=encoder, inputs=Squares(dataset))
    assert torch.equal(encoder[1].weight, result.learner.encoder[1].weight)


def test_features_of_either_sign_get_no_final_relu(stream, dataset):
    assert configure(stream, "sequential").final_relu
    signed = replace(stream, dataset=replace(dataset, features=dataset.features - dataset.features.mean()))
    assert not configure(signed, "sequential").final_relu


def test_on_SUN_the_memory_is_half_as_large(stream, monkeypatch):
    assert configure(stream, "agem").memory_per_class == 10
    monkeypatch.setitem(vars(stream.dataset), "benchmark", "SUN")
    assert configure(stream, "agem").memory_per_class == 5
    assert configure(stream, "agem", memory_per_class=7).memory_per_class == 7


def test_a_wild_learning_rate_is_reported_as_divergence(stream, fast):
    with pytest.raises(TrainingError, match="training diverged") as error:
        run_stream(stream, "ewc", fast("ewc", lr=1e30, grad_clip=0.0))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("sequential", {"lr": 0.0}, "lr is 0.0"),
        ("sequential", {"gamma": -1.0}, "gamma is -1.0"),
        ("sequential", {"hidden": 0}, "hidden is 0"),
        ("ewc", {"penalty": -1.0}, "penalty is -1.0"),
        ("mas", {"importance_batch": 0}, "importance_batch is 0"),
        ("replay", {"memory_per_class": 0}, "memory_per_class is 0"),
        ("lwf", {"temperature": 0.0}, "temperature is 0.0"),
    ],
)
def test_settings_that_cannot_work_are_refused(stream, fast, name, change, says):
    with pytest.raises(ConfigError, match=says):
        run_stream(stream, name, fast(name, **change))


def test_an_unknown_strategy_setting_or_config_is_refused(stream, dataset):
    with pytest.raises(ConfigError, match="did you mean 'ewc'"):
        run_stream(stream, "ewcc")
    with pytest.raises(ConfigError, match="did you mean 'hidden'"):
        configure(stream, "ewc", hiden=3)
    with pytest.raises(ConfigError, match="EWCConfig, not ContinualConfig"):
        run_stream(stream, "ewc", ContinualConfig())
    with pytest.raises(ConfigError, match="inputs for 360 rows"):
        run_stream(
            stream.part(1),
            "sequential",
            inputs=Squares(replace(dataset, features=dataset.features[:80], labels=dataset.labels[:80])),
        )
    with pytest.raises(ConfigError, match="features \\[rows, dimensions\\]"):
        run_stream(stream, "sequential", inputs=Squares(dataset))


@pytest.mark.parametrize(
    ("name", "stored", "rows"),
    [
        ("sequential", lambda n, weights: 0, lambda n: 2 * n),
        ("multitask", lambda n, weights: 64 * n, lambda n: 2 * n),  # 16 features of 4 bytes a row
        ("replay", lambda n, weights: 64 * 12 * 5, None),  # 5 rows of each of 12 classes
        ("ewc", lambda n, weights: 2 * 4 * weights, None),  # an importance and an anchor of each weight
        ("analytic", lambda n, weights: 8 * (16 * 16 + 12 * 16 + 12), lambda n: n),
    ],
)
def test_a_run_counts_the_bytes_it_stores_and_the_rows_it_passes(stream, fast, name, stored, rows):
    changes = {} if name == "analytic" else {"epochs": 2}
    result = run_stream(stream, name, fast(name, **changes | ({"memory_per_class": 5} if name == "replay" else {})))
    weights = sum(p.numel() for p in result.learner.parameters() if p.requires_grad)
    n = len(stream.train_rows)
    assert result.stored_bytes == stored(n, weights)
    assert result.rows == rows(n) if rows else result.rows > 2 * n
