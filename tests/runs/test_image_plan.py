"""Streams of images: frozen blocks, augmentation, batch normalization, and the plan of a run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from classnorm.continual import FeatureInputs, TaskStream, configure, run_stream
from classnorm.continual.strategies import STRATEGIES
from classnorm.runs.image_plan import plan_images
from classnorm.runs.streams import ImageMode

SIZE = 16


@pytest.fixture
def pictures(experiment, data, monkeypatch, tmp_path):
    """An experiment on images of noise."""
    monkeypatch.setenv("CLASSNORM_CACHE", str(tmp_path / "cache"))
    images = np.random.default_rng(0).integers(0, 256, (data.n_rows, SIZE, SIZE), dtype=np.uint8)

    def build(freeze_blocks=0, **changes):
        mode = ImageMode("convnet-gray", SIZE, freeze_blocks=freeze_blocks)
        return replace(experiment(**changes), dataset=replace(data, images=images), images=mode)

    return build


def test_frozen_blocks_are_not_trained_and_the_later_ones_are(pictures, tmp_path):
    trial = pictures(2)
    before, _ = trial.images.load(trial.dataset, trial.seed, torch.device("cpu"))
    document = trial.run(tmp_path / "run").document
    assert document["freeze_blocks"] == 2
    assert len(list(before.parameters())) == 2 * 3  # two blocks of a convolution and a normalization are left
    assert trial.name != pictures(0).name != pictures(1).name
    assert (tmp_path / "cache").is_dir()


def test_augmented_runs_resume_to_the_same_digits(pictures, tmp_path, monkeypatch):
    trial = pictures(1, augment=True)
    whole = trial.run(tmp_path / "whole").document
    learn, plain = STRATEGIES["sequential"].learn, pictures(1).run(tmp_path / "plain").document

    def killed(self, task):
        if task == 2:
            raise KeyboardInterrupt
        return learn(self, task)

    monkeypatch.setattr(STRATEGIES["sequential"], "learn", killed)
    with pytest.raises(KeyboardInterrupt):
        trial.run(tmp_path / "part")
    monkeypatch.undo()
    resumed = trial.run(tmp_path / "part").document
    assert resumed["per_task"] == whole["per_task"] != plain["per_task"]


@pytest.mark.parametrize("kind", ["frozen", "trained"])
def test_batch_normalization_is_trained_only_when_asked(data, kind):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(data.d_z, 8), nn.BatchNorm1d(8))
    stream = TaskStream.make(data, 4)
    config = configure(stream, "sequential", epochs=1, hidden=8, batch_norm=kind)
    result = run_stream(stream, "sequential", config, encoder=encoder)
    assert torch.equal(result.learner.encoder[1].running_mean, torch.zeros(8)) == (kind == "frozen")


def test_a_plan_counts_rows_and_leaves_the_encoder_as_it_was(data):
    stream = TaskStream.make(data, 4)
    encoder = nn.Sequential(nn.Linear(data.d_z, 8), nn.BatchNorm1d(8))
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    inputs = FeatureInputs.of(data, torch.device("cpu"))
    rows = len(stream.train_rows)
    later = rows - len(stream.train(0))
    for name, changes, expected in [
        ("sequential", {}, 3 * rows),
        ("replay", {"memory_batch": 16, "batch_size": 32}, 3 * rows + 3 * later // 2),
        ("ewc", {}, 4 * rows),
        ("lwf", {}, 3 * rows + later),
    ]:
        plan = plan_images(stream, configure(stream, name, epochs=3, **changes), encoder, inputs)
        assert (plan.tasks, plan.trained, plan.scored) == (4, expected, 5 * len(stream.test_rows))
    assert plan.seconds == pytest.approx(plan.trained * plan.train_seconds + plan.scored * plan.score_seconds)
    assert f"{plan.trained:,} rows to train on" in str(plan)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    assert all(p.grad is None for p in encoder.parameters())
