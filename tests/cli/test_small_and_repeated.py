"""Runs that replace others, repeat others, or have hardly any data."""

import json
import shutil

import numpy as np
import pytest

FAST = ["--hidden", 8, "--epochs", 2, "--quiet"]


@pytest.fixture
def bundle(arrays, write_bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_bundle(tmp_path / "data.npz", arrays)


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("command", "bad"),
    [
        (["train", "data.npz", "--calibration", "none", *FAST], ["--lr", "1e30", "--optimizer", "sgd"]),
        (["continual", "data.npz", "--tasks", 2, *FAST], ["--lr", "1e30", "--grad-clip", 0, "--no-class-norm"]),
    ],
)
def test_a_failing_run_leaves_the_finished_one_that_it_was_to_replace(classnorm, bundle, tmp_path, command, bad):
    assert classnorm(*command, "--out", "run").code == 0
    before = content(tmp_path / "run" / "seed-0")
    outcome = classnorm(*command, *bad, "--out", "run")
    assert outcome.code == 2 and "diverged" in outcome.err
    after = content(tmp_path / "run" / "seed-0")
    assert {name: after.get(name) for name in before} == before
    assert classnorm("report", "run", "--quiet").code == 0


def test_a_run_that_replaces_another_leaves_nothing_of_it(classnorm, bundle, tmp_path):
    command = ["train", "data.npz", "--calibration", "none", *FAST, "--out", "run"]
    assert classnorm(*command).code == 0
    (tmp_path / "run" / "seed-0" / "encoder.json").write_text("{}")
    assert classnorm(*command, "--hidden", 9).code == 0
    folder = tmp_path / "run" / "seed-0"
    assert json.loads((folder / "result.json").read_text())["config"]["hidden"] == 9
    assert json.loads((folder / "model.json").read_text())["config"]["hidden"] == 9
    assert {path.name for path in folder.iterdir()} == {
        *("README.md", "result.json", "model.json", "model.safetensors", "history.jsonl", "predictions.npz")
    }


def test_one_training_row_a_class_goes_through_train_and_report(classnorm, arrays, write_bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    firsts = np.array([0, 6, 12])
    write_bundle(tmp_path / "data.npz", arrays | {"train_idx": firsts, "test_seen_idx": firsts + 1})
    for method in ("classnorm", "kernel"):
        settings = FAST[:4] if method == "classnorm" else []
        outcome = classnorm("train", "data.npz", "--method", method, *settings, "--quiet", "--out", f"runs/{method}")
        assert outcome.code == 0, outcome.err
    outcome = classnorm("report", "runs")
    assert outcome.code == 0, outcome.err
    assert "kernel" in outcome.out


def test_two_pictures_a_class_go_through_train_on_images(classnorm, write_image, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(12):
        write_image(tmp_path / "zoo" / f"class{seed // 2}" / f"{seed}.png", seed=seed)
    names = [f"class{i}" for i in range(6)]
    rows = np.random.default_rng(0).random((6, 4)).round(3)
    table = "".join(f"{name},{','.join(map(str, row))}\n" for name, row in zip(names, rows, strict=True))
    (tmp_path / "d.csv").write_text(table)
    command = ["train", "--images", "zoo", "--descriptions", "d.csv", "--encoder", "convnet", "--size", 32]
    outcome = classnorm(*command, "--method", "kernel", "--out", "run", "--quiet")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "run" / "report" / "index.html").is_file()


def test_a_copy_of_a_run_is_no_further_seed(classnorm, write_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", seed=0)
    write_run(tmp_path / "runs" / "b", seed=1)
    shutil.copytree(tmp_path / "runs" / "a", tmp_path / "runs" / "copy")
    outcome = classnorm("report", "runs", "--json")
    [group] = json.loads(outcome.out)["groups"]
    assert group["seeds"] == 2
    assert "1 of 3 runs repeat a seed and are left out" in outcome.err
