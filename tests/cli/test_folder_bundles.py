"""Every command on a folder bundle, and memory that does not grow with its rows."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, load, synthesize


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "folder"
    config = SyntheticConfig(classes=24, unseen=6, rows=1200, features=32, attributes=20, noise=0.5)
    synthesize(config, path, "float16", 250)
    return path


def test_train_evaluate_and_predict_agree_with_the_same_rows_in_a_file(classnorm, folder, tmp_path):
    classnorm("data", "convert", folder, tmp_path / "file.npz", "--quiet")
    runs = {}
    for data in (folder, tmp_path / "file.npz"):
        out = tmp_path / f"runs-{data.stem}"
        outcome = classnorm("train", data, "--method", "kernel", "--out", out, "--quiet", "--json")
        assert outcome.code == 0, outcome.err
        runs[data] = json.loads(outcome.out)["runs"][0]
    for name, value in runs[folder]["scores"].items():
        assert value == pytest.approx(runs[tmp_path / "file.npz"]["scores"][name], abs=1.0)
    model = tmp_path / "runs-folder" / "seed-0"
    scores = json.loads(classnorm("evaluate", model, folder, "--json", "--quiet").out)["scores"]
    assert scores == runs[folder]["scores"]
    assert scores["harmonic"] > 30  # chance is 4

    outcome = classnorm("predict", model, folder, "--top", 2)
    assert outcome.code == 0, outcome.err
    data = load(folder)
    answers = list(csv.DictReader(io.StringIO(outcome.out)))
    assert [int(answer["row"]) for answer in answers] == [row for row in range(1200) for _ in range(2)]
    classnorm("predict", model, folder, "--top", 2, "--out", tmp_path / "answers.csv", "--quiet")
    assert (tmp_path / "answers.csv").read_text() == outcome.out
    test = np.isin(np.arange(1200), data.split.test_seen)
    right = [data.class_names[data.labels[row]] == answers[2 * row]["class"] for row in np.flatnonzero(test)]
    assert 100 * np.mean(right) == pytest.approx(scores["seen"], abs=3)


def test_a_run_on_a_folder_resumes(classnorm, folder, tmp_path):
    arguments = ("train", folder, "--epochs", 1, "--hidden", 32, "--out", tmp_path / "runs", "--quiet", "--json")
    first, again = (json.loads(classnorm(*arguments, *flags).out) for flags in ((), ("--resume",)))
    assert first == again


def test_check_reads_every_row(classnorm, folder, tmp_path):
    document = json.loads(classnorm("data", "check", folder, "--json").out)
    assert document["checksum"] == load(folder).checksum
    assert (document["features"]["dtype"], document["duplicates"]["compared_rows"]) == ("float16", 480)
    assert classnorm("data", "convert", folder, "--out", tmp_path / "copy", "--quiet").code == 0
    rows = np.load(tmp_path / "copy" / "features-00000.npy")
    rows[3, 3] += 1
    np.save(tmp_path / "copy" / "features-00000.npy", rows)
    outcome = classnorm("data", "check", tmp_path / "copy", "--quiet")
    assert outcome.code == 2 and "features-00000.npy: is not as it was written" in outcome.err


def test_search_on_a_folder(classnorm, folder, tmp_path):
    arguments = ("--sampler", "grid", "--space", "ridge=0.1,1", "--splits", 1, "--jobs", 1, "--out", tmp_path / "out")
    outcome = classnorm("search", folder, "--method", "kernel", *arguments, "--quiet", "--json")
    assert outcome.code == 0, outcome.err
    assert len(json.loads(outcome.out)["trials"]) == 2


def test_convert_to_a_folder(classnorm, folder, tmp_path):
    flags = ("--dtype", "float32", "--rows-per-shard", 500, "--json", "--quiet")
    document = json.loads(classnorm("data", "convert", folder, "--out", tmp_path / "x", *flags).out)
    data = load(tmp_path / "x")
    assert (document["checksum"], document["sizes"]) == (data.checksum, data.sizes)
    np.testing.assert_array_equal(np.asarray(data.features), np.asarray(load(folder).features).astype(np.float32))
    assert len(list((tmp_path / "x").glob("*.npy"))) == 3


def test_synthesize_writes_what_it_is_told(classnorm, tmp_path):
    sizes = ("--rows", 500, "--classes", 20, "--unseen", 4, "--features-dim", 8, "--attributes-dim", 6, "--seed", 3)
    outcome = classnorm("data", "synthesize", *sizes, "--dtype", "float32", "--out", tmp_path / "x")
    assert outcome.code == 0 and "500/500" in outcome.err
    data = load(tmp_path / "x")
    assert (data.features.shape, data.descriptors.shape, data.features.dtype) == ((500, 8), (20, 6), np.float32)
    assert data.sizes["unseen_classes"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "convert", "{data}"], "give either TARGET or --out FOLDER"),
        (["data", "convert", "{data}", "{tmp}/x.npz", "--out", "{tmp}/x"], "give either TARGET or --out FOLDER"),
        (["data", "convert", "{data}", "--out", "{data}"], "is the dataset itself"),
        (["data", "convert", "{data}", "{tmp}/x.npz", "--rows-per-shard", "5"], "use --out FOLDER"),
        (["data", "convert", "{data}", "{tmp}/x", "--dtype", "float16"], "--dtype is for bundles"),
        (["data", "convert", "{data}", "--out", "{tmp}/x", "--float16", "--dtype", "float32"], "contradict"),
        (["data", "synthesize", "--classes", "2", "--unseen", "1", "--out", "{tmp}/x"], "at least 2 seen classes"),
        (
            ["train", "{data}", "--method", "sae", "--memory", "1e-6", "--out", "{tmp}/r"],
            "raise --memory",
        ),
        (
            ["continual", "{data}", "--tasks", "2", "--memory", "1e-6", "--out", "{tmp}/r"],
            "raise --memory",
        ),
    ],
)
def test_bad_arguments_are_one_clear_line(refused, folder, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(*(argument.format(data=folder, tmp=tmp_path) for argument in arguments), "--quiet")
    assert not list(tmp_path.glob("x*"))


PEAK = """
import inspect, re, sys
from pathlib import Path
import torch
from classnorm.data import SyntheticConfig, load, synthesize
from classnorm.data import row_store
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.runs.experiment import score
from classnorm.scoring import fit_calibrated, fitting, scorer
from classnorm.training import stored_rows

# Everything that is read at a time is small, so that growth with the rows would show.
stored_rows._POOL_BYTES, row_store._SPAN_BYTES = 1 << 22, 1 << 20
fitting._MAX_LOGITS = 1 << 16
construct = scorer.Scorer.__init__
names = [p.name for p in inspect.signature(construct).parameters.values() if p.default is not p.empty]
defaults = dict(zip(names, construct.__defaults__, strict=True)) | {"block_bytes": 1 << 22}
construct.__defaults__ = tuple(defaults.values())
rows, folder = int(sys.argv[1]), Path(sys.argv[2])
config = SyntheticConfig(classes=50, unseen=10, rows=rows, features=256, attributes=20)
synthesize(config, folder, "float16", 8192)
data = load(folder)
jobs = {"classnorm": dict(epochs=1, hidden=32), "kernel": dict(epochs=1, dimensions=32)}
for method, settings in jobs.items():
    job = FitJob(data, *resolve(data, method, "reference", batch_size=1024, validation_splits=1, **settings))
    score(fit_calibrated(job, FitContext(torch.device("cpu"))).scorer, data)
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(data.features.size * 2, int(peak[1]) * 1024)
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Synthesize, train both methods, calibrate and score, in 8 and in 66 MB of features."""
    sizes, peaks = [], []
    for rows in (16_000, 128_000):
        command = [sys.executable, "-c", PEAK, str(rows), str(tmp_path / f"{rows}")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        size, peak = map(int, done.stdout.split())
        sizes.append(size)
        peaks.append(peak)
    growth = (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])
    # Labels, splits and side scores take a few dozen bytes per row, of 512; rows in float32 would take 1024.
    assert growth < 0.5, (sizes, peaks)
