"""`classnorm search` as a user runs it."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from classnorm.cli import main
from classnorm.data import SyntheticConfig, save_bundle, synthetic


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "small.npz"
    save_bundle(synthetic(SyntheticConfig(classes=40, unseen=10, rows=1200, features=32, attributes=20)), path)
    return path


def test_the_command_writes_its_table_plot_and_recipe_and_prints_the_promised_json(bundle, tmp_path, capsys):
    arguments = ["search", str(bundle), "--sampler", "grid", "--space", "lr=1e-4,3e-3", "hidden=16,32", "--epochs", "3"]
    main([*arguments, "--splits", "2", "--jobs", "1", "--seeds", "2", "--out", str(tmp_path), "--json", "--quiet"])
    out, err = capsys.readouterr()
    assert err == ""
    document = json.loads(out)
    assert len(document["trials"]) == 4
    winner = max(document["trials"], key=lambda trial: trial["harmonic"])
    assert document["best"]["lr"] == winner["settings"]["lr"]
    assert document["scores"].keys() == {"unseen", "seen", "harmonic", "zsl", "ausuc"}
    mean = np.mean([run["scores"]["harmonic"] for run in document["runs"]])
    assert document["scores"]["harmonic"] == pytest.approx(mean, abs=1e-3)
    with (tmp_path / "trials.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["complete"] * 4
    assert (tmp_path / "trials.png").read_bytes()[:4] == b"\x89PNG"

    main(
        [
            "train",
            str(bundle),
            "--recipe",
            str(tmp_path / "recipe.json"),
            "--out",
            str(tmp_path / "again"),
            "--json",
            "--quiet",
        ]
    )
    again = json.loads(capsys.readouterr().out)
    assert again["config"] == document["best"]
    assert again["runs"][0]["scores"] == document["runs"][0]["scores"]


def test_a_search_varies_the_settings_of_its_method(capsys, bundle, tmp_path):
    quick = ["--epochs", "1", "--hidden", "8", "--synthesized", "5", "--classifier-epochs", "1"]
    space = ["--sampler", "grid", "--splits", "1", "--jobs", "1", "--space", "critic-steps=1,2"]
    main(["search", str(bundle), "--method", "fclswgan", *quick, *space, "--out", str(tmp_path), "--json", "--quiet"])
    document = json.loads(capsys.readouterr().out)
    assert document["method"] == "fclswgan"
    assert [trial["settings"] for trial in document["trials"]] == [{"critic_steps": 1}, {"critic_steps": 2}]


def test_a_search_on_data_without_seen_test_rows_prints_null_for_undefined_scores(capsys, tmp_path):
    whole = synthetic(SyntheticConfig(classes=20, unseen=5, rows=400, features=16, attributes=8))
    path = tmp_path / "one-sided.npz"
    save_bundle(replace(whole, split=replace(whole.split, test_seen=whole.split.test_seen[:0])), path)
    space = ["--sampler", "grid", "--splits", "1", "--jobs", "1", "--space", "hidden=8,16"]
    main(["search", str(path), "--epochs", "1", *space, "--out", str(tmp_path / "out"), "--json", "--quiet"])
    document = json.loads(capsys.readouterr().out)
    assert document["scores"]["harmonic"] is None
    assert document["scores"]["zsl"] > 0


GRID = ["--sampler", "grid", "--space", "lr=1e-4,1e-3,3e-3,1e-2", "hidden=16,32"]
TPE = ["--no-prune", "--trials", "8", "--space", "lr=1e-4..1e-2:log"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("sampler", [GRID, TPE], ids=["grid", "tpe"])
def test_a_search_killed_three_times_ends_with_the_table_of_an_undisturbed_one(bundle, tmp_path, sampler):
    base = [sys.executable, "-m", "classnorm", "search", str(bundle), *sampler, "--epochs", "12", "--splits", "2"]
    base += ["--jobs", "1", "--quiet", "--json", "--out"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    killed, moments = tmp_path / "killed", random.Random(0)
    for kill in range(3):
        victim = subprocess.Popen([*base, str(killed)], env=environment, stdout=subprocess.DEVNULL)
        wanted, deadline = kill + moments.randint(1, 3), time.monotonic() + 60
        while victim.poll() is None and time.monotonic() < deadline:
            if len(list(killed.glob("fits/*/sides.npz"))) >= wanted + kill:
                break
            time.sleep(0.01)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    before = {path: path.stat().st_mtime_ns for path in killed.glob("fits/*/sides.npz")}
    assert before
    assert not (killed / "trials.csv").exists()
    for folder in (killed, tmp_path / "whole"):
        subprocess.run([*base, str(folder)], env=environment, check=True, stdout=subprocess.DEVNULL)
    assert all(path.stat().st_mtime_ns == moment for path, moment in before.items())  # nothing was done twice
    for file in ("trials.csv", "recipe.json"):
        assert (killed / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
