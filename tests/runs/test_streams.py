"""Continual experiments and their runs."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from classnorm.continual import TaskStream, configure, run_stream
from classnorm.errors import ConfigError, DataError
from classnorm.metrics import continual_scores, gzsl_scores
from classnorm.results.run_folder import Result
from classnorm.runs import job
from classnorm.runs.streams import ImageMode

FILES = {"README.md", "result.json", "state.safetensors"}


def test_the_scores_are_those_of_the_stream(experiment, data, tmp_path):
    trial = experiment()
    document = trial.run(tmp_path).document
    stream = TaskStream.make(data, 5, 1)
    result = run_stream(stream, "sequential", trial.config, 1)
    expected = continual_scores(result.history, stream.test_labels, stream.tasks)
    for name, value in expected.summary().items():
        assert document["scores"][name] == pytest.approx(value, abs=1e-4)
    assert np.allclose(document["matrix"], expected.matrix, atol=1e-3)
    result = Result.read(tmp_path)
    assert (result.document, result.kind) == (document, "stream")


def test_the_oracle_has_the_best_bias_of_each_step(experiment, data, tmp_path):
    trial = experiment()
    document = trial.run(tmp_path).document
    stream = TaskStream.make(data, 5, 1)
    history = run_stream(stream, "sequential", trial.config, 1).history
    best = []
    for step in range(1, 5):
        shifted = [history[step] - 25 * bias * stream.seen(step) for bias in np.linspace(-0.1, 0.3, 81)]  # γ² is 25
        scores = (gzsl_scores(logits, stream.test_labels, stream.seen(step)).harmonic for logits in shifted)
        best.append(max(scores))
    assert document["oracle_mH"] == pytest.approx(np.mean(best), abs=0.02)
    assert document["oracle_mH"] >= max(document["bias_curve"]["harmonic"]) - 1e-3


def test_the_reported_part_has_no_class_of_the_validation_sequence(experiment, data):
    trial = replace(experiment(), part=(2, None))
    stream = TaskStream.make(data, 5, 1)
    used = set(np.concatenate(stream.tasks[:2]).tolist())
    assert used.isdisjoint(trial.stream.classes.tolist())
    assert len(used) + trial.stream.n_classes == 16


def test_a_finished_run_with_other_settings_is_not_mistaken_for_this_one(experiment, tmp_path):
    experiment().run(tmp_path)
    with pytest.raises(ConfigError, match=r"lr 0\.001 instead of 0\.5; choose another `out`"):
        experiment(lr=0.5).run(tmp_path)


def test_a_run_interrupted_before_its_result_is_written_can_be_resumed(experiment, tmp_path, monkeypatch):
    whole = experiment().run(tmp_path / "whole").document
    with monkeypatch.context() as interrupted:
        interrupted.setattr(job, "new_run", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            experiment().run(tmp_path / "run")
    resumed = experiment().run(tmp_path / "run").document
    assert (resumed["scores"], resumed["matrix"]) == (whole["scores"], whole["matrix"])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "README.md",
        "result.json",
        "state.safetensors",
    ]


def test_what_a_run_killed_at_the_very_end_leaves_is_swept(experiment, tmp_path):
    experiment().run(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "logits-00.npy").write_bytes(b"")
    experiment().run(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_images_with_an_encoder_drawn_by_the_seed_give_the_same_run_twice(experiment, data, tmp_path):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (data.n_rows, 16, 16), dtype=np.uint8)
    mode = ImageMode("convnet-gray", 16)
    trial = replace(experiment(), dataset=replace(data, images=images), images=mode)
    torch.manual_seed(5)
    first = trial.run(tmp_path / "a").document
    torch.manual_seed(6)  # nothing may depend on it
    second = trial.run(tmp_path / "b").document
    assert first["scores"] == second["scores"]
    assert (first["encoder"], first["image_size"]) == ("convnet-gray", 16)
    assert trial.name != experiment().name


def test_an_encoder_trained_from_scratch_has_other_settings(data):
    stream = TaskStream.make(data, 5)
    assert ImageMode("resnet18").settings == {}
    config = configure(stream, "ewc", **ImageMode("convnet-gray").settings)
    assert (config.lr, config.encoder_lr, config.grad_clip) == (0.02, 0.1, 1.0)


def test_image_mode_without_images_says_how_to_provide_them(experiment, tmp_path):
    with pytest.raises(DataError, match="with `images=DIR`"):
        replace(experiment(), images=ImageMode("convnet-gray", 16)).run(tmp_path)
