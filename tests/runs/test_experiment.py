"""Runs: what a folder holds, how an interrupted run goes on."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open

from classnorm.data import SyntheticConfig, synthetic
from classnorm.errors import ConfigError, DataError
from classnorm.methods import resolve
from classnorm.metrics import Calibration, calibrated_scores, curve_of, gzsl_scores
from classnorm.results.run_folder import Result, find_results
from classnorm.runs.experiment import Experiment
from classnorm.runs.job import Execution
from classnorm.scoring import Scorer
from classnorm.training.epochs import load_tensors, save_tensors


class Killed(Exception):
    """Stands for the process being killed in the middle of a training."""


def killing(stage):
    """Kills a run in the fifth epoch of a stage."""

    def on_progress(name, epoch):
        if name == stage and epoch.done == 5:
            raise Killed

    return on_progress


@pytest.fixture(scope="module")
def dataset():
    return synthetic(SyntheticConfig(classes=30, unseen=8, rows=900, features=32, attributes=20, noise=0.7))


def experiment(dataset, seed=0, **changes):
    _, config = resolve(dataset, **({"hidden": 32, "epochs": 6, "lr": 3e-3} | changes))
    return Experiment(dataset, "classnorm", "reference", config, seed)


@pytest.fixture(scope="module")
def result(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "seed-0"
    return experiment(dataset).run(folder, Execution(checkpoint_every=2, command="classnorm train"))


def test_the_folder_holds_what_it_promises(result):
    files = {path.name for path in result.folder.iterdir()}
    model = {"model.safetensors", "model.json"}
    assert files == {"result.json", *model, "history.jsonl", "predictions.npz", "README.md"}


def test_the_result_carries_its_provenance(result, dataset):
    document = json.loads((result.folder / "result.json").read_text())
    assert document["dataset"]["checksum"] == dataset.checksum
    assert document["dataset"]["split_checksum"] == dataset.split.checksum
    assert document["versions"]["torch"] == torch.__version__
    assert document["config"]["hidden"] == 32
    assert document["seed"] == 0
    assert 0 < document["train_seconds"] < document["fit_seconds"]


def test_the_saved_model_reproduces_the_saved_scores(result, dataset):
    scorer = Scorer.load(result.folder)
    rows = dataset.test_rows
    scores = gzsl_scores(scorer.scores(dataset.features[rows]), dataset.labels[rows], dataset.seen)
    assert {name: round(scores[name], 4) for name in scores} == result.scores


def test_all_scores_can_be_recomputed_from_the_predictions_without_the_data(result):
    fresh = Result.read(result.folder)
    u, s, h = calibrated_scores(fresh.best_scores, Calibration.parse(fresh.document["calibration"]))
    curve = curve_of(fresh.best_scores)
    again = {"unseen": u, "seen": s, "harmonic": h, "zsl": curve.zsl, "ausuc": curve.area}
    assert again == pytest.approx(result.scores, abs=0.02)


def test_top1_predictions_have_the_saved_accuracy(result):
    stored = result.arrays("predictions")
    seen = stored["seen"][stored["label"]]
    per_class = [(stored["top1"][stored["label"] == c] == c).mean() for c in np.unique(stored["label"][seen])]
    assert 100 * np.mean(per_class) == pytest.approx(result.scores["seen"], abs=1e-3)


def test_the_history_has_a_line_per_epoch(result):
    assert [record["epoch"] for record in result.history] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("killed_in", ["validation 2/2", "training"])
def test_a_killed_run_resumes_to_the_same_result(result, dataset, tmp_path, watching, killed_in):
    folder = tmp_path / "seed-0"
    with pytest.raises(Killed), watching(killing(killed_in)):
        experiment(dataset).run(folder, Execution(checkpoint_every=2))
    assert not (folder / "result.json").exists()
    events = []
    with watching(lambda stage, epoch: events.append((stage, epoch.done))):
        resumed = experiment(dataset).run(folder, Execution(checkpoint_every=2))
    assert events[0] == (killed_in, 5)  # the checkpoint of epoch 4 was the last one
    assert resumed.scores == result.scores
    assert (folder / "model.safetensors").read_bytes() == (result.folder / "model.safetensors").read_bytes()


def test_resuming_a_finished_run_reads_it(result, dataset, watching):
    with watching() as stages:
        again = experiment(dataset).run(result.folder)
    assert again.document == result.document
    assert stages == []


def test_resuming_does_not_replace_a_finished_run_with_other_settings(dataset, tmp_path):
    experiment(dataset, calibration="none", epochs=1).run(tmp_path)
    with pytest.raises(ConfigError, match="hidden 32 instead of 16"):
        experiment(dataset, calibration="none", epochs=1, hidden=16).run(tmp_path)
    assert Result.read(tmp_path).document["config"]["hidden"] == 32


def test_without_resuming_a_run_is_replaced(dataset, tmp_path):
    experiment(dataset, calibration="none", epochs=1).run(tmp_path)
    other = experiment(dataset, calibration="none", epochs=1, hidden=16)
    assert other.run(tmp_path, Execution(resume=False)).document["config"]["hidden"] == 16


def test_two_seeds_are_found_below_their_folder(dataset, tmp_path):
    for seed in (0, 1):
        experiment(dataset, seed, calibration="none", epochs=1).run(tmp_path / f"seed-{seed}")
    assert [r.document["seed"] for r in find_results([tmp_path])] == [0, 1]


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="no finished run"):
        find_results([tmp_path])


def test_a_side_without_rows_is_null_in_the_result(dataset, tmp_path):
    from dataclasses import replace

    from classnorm.data import Split

    without = replace(dataset, split=Split(dataset.split.train, dataset.split.test_seen, dataset.split.test_unseen[:0]))
    result = experiment(without, calibration="none", epochs=1).run(tmp_path)
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["scores"]["unseen"] is None
    assert document["scores"]["harmonic"] is None
    assert np.isnan(result.scores["ausuc"])


def test_a_resumed_run_reports_the_time_of_all_its_parts(dataset, tmp_path, watching):
    with pytest.raises(Killed), watching(killing("training")):
        experiment(dataset).run(tmp_path, Execution(checkpoint_every=2))
    path = tmp_path / "checkpoint" / "training.safetensors"
    with safe_open(path, framework="pt") as file:
        key = file.metadata()["key"]
    tensors, documents = load_tensors(path, key, {"history": list[dict[str, float]]})
    for record in documents["history"]:
        record |= {"seconds": 100.0, "cpu_seconds": 50.0}  # four slow epochs
    save_tensors(path, key, tensors, documents)
    document = experiment(dataset).run(tmp_path, Execution(checkpoint_every=2)).document
    assert 400 < document["train_seconds"] < 500 and 400 < document["fit_seconds"] < 500
    assert 200 < document["cpu_seconds"] < 300
