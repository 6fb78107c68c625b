"""Continual experiments and their runs."""

import json
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from classnorm.continual import TaskStream, configure, run_stream
from classnorm.errors import ConfigError, DataError
from classnorm.metrics import continual_scores, gzsl_scores
from classnorm.results.run_folder import Result
from classnorm.runs import streams
from classnorm.runs.engine import Engine, run_tasks
from classnorm.runs.streams import ImageMode, run_continual


def test_the_scores_are_those_of_the_stream(experiment, data, tmp_path):
    trial = experiment()
    document = run_continual(trial, tmp_path).document
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
    document = run_continual(trial, tmp_path).document
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
    run_continual(experiment(), tmp_path)
    with pytest.raises(ConfigError, match="choose another folder"):
        run_continual(experiment(lr=0.5), tmp_path, resume=True)


def test_a_run_interrupted_before_its_result_is_written_can_be_resumed(experiment, tmp_path, monkeypatch):
    whole = run_continual(experiment(), tmp_path / "whole").document
    with monkeypatch.context() as interrupted:
        interrupted.setattr(streams, "new_run", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_continual(experiment(), tmp_path / "run")
    resumed = run_continual(experiment(), tmp_path / "run", resume=True).document
    assert (resumed["scores"], resumed["matrix"]) == (whole["scores"], whole["matrix"])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["result.json", "state.safetensors"]


def test_what_a_run_killed_at_the_very_end_leaves_is_swept(experiment, tmp_path):
    run_continual(experiment(), tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "logits-00.npy").write_bytes(b"")
    run_continual(experiment(), tmp_path, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", "state.safetensors"]


def test_images_with_an_encoder_drawn_by_the_seed_give_the_same_run_twice(experiment, data, tmp_path):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (data.n_rows, 16, 16), dtype=np.uint8)
    mode = ImageMode("convnet-gray", 16)
    trial = replace(experiment(), dataset=replace(data, images=images), images=mode)
    torch.manual_seed(5)
    first = run_continual(trial, tmp_path / "a").document
    torch.manual_seed(6)  # nothing may depend on it
    second = run_continual(trial, tmp_path / "b").document
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
        run_continual(replace(experiment(), images=ImageMode("convnet-gray", 16)), tmp_path)


def test_a_finished_run_of_version_0_1_counts_as_finished_for_the_engine_too(experiment, tmp_path):
    trial = experiment()
    folder = tmp_path / trial.name
    document = run_continual(trial, folder).document
    old = {name: value for name, value in document.items() if name not in ("kind", "chosen")}
    (folder / "result.json").unlink()
    (folder / "state.safetensors").unlink()
    (folder / "continual.json").write_text(json.dumps(old))
    assert run_tasks([trial], tmp_path, Engine(jobs=1)) == {}
    assert Result.read(folder).document == old | {"kind": "stream"}
    assert not (folder / "state.safetensors").exists()  # it was not run again
