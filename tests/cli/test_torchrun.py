"""`torchrun -m classnorm train`: one result and one voice, and a process that dies."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

DATA = "synthetic:classes=20,unseen=5,rows=701,features=16,attributes=12"
# Plain gradient descent keeps the rounding of sums small; Adam takes whole steps along gradients that are 0.
SETTINGS = ["--hidden", "16", "--batch-size", "50", "--optimizer", "sgd", "--lr", "0.01", "--validation-splits", "1"]


def torchrun(*arguments):
    """Starts the command in two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "classnorm", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, [line for line in err.splitlines() if line.startswith("classnorm: ")]


def processes_of(agent):
    """Process ids of the two processes, in order of their start."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listing.splitlines()]
    return sorted(int(pid) for pid, parent in pairs if int(parent) == agent.pid)


def kill_one(agent, after):
    """Kill the second process as soon as a file is there."""
    deadline = time.monotonic() + 100
    while not after.is_file():
        assert agent.poll() is None, agent.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(processes_of(agent)[1], signal.SIGKILL)


def epochs(checkpoint):
    with safe_open(checkpoint, framework="np") as file:
        return json.loads(file.metadata()["history"])


@pytest.mark.long
@pytest.mark.slow
def test_a_process_that_dies_ends_all_and_resume_gives_the_result_of_one_process(classnorm, tmp_path):
    command = ["train", DATA, *SETTINGS, "--calibration", "validation:bias", "--epochs", "20", "--seeds", "2"]
    checkpoint = tmp_path / "two" / "seed-0" / "checkpoint" / "training.safetensors"
    agent = torchrun(*command, "--checkpoint-every", "1", "--out", str(tmp_path / "two"))
    kill_one(agent, checkpoint)
    code, _, lines = ended(agent)
    assert code != 0
    *_, error = lines
    assert error.startswith("classnorm: error: the training stopped") and error.endswith("--resume")
    assert sum("error" in line for line in lines) == 1
    before = epochs(checkpoint)
    assert 0 < len(before) < 20
    assert not list(checkpoint.parent.glob(".*"))  # nothing half-written

    code, out, lines = ended(torchrun(*command, "--resume", "--json", "--out", str(tmp_path / "two")))
    assert code == 0
    two = json.loads(out)  # a second document would be an error
    history = (tmp_path / "two" / "seed-0" / "history.jsonl").read_text().splitlines()
    assert [
        json.loads(line) for line in history[: len(before)]
    ] == before  # not trained again, or the times would differ

    one = json.loads(classnorm(*command, "--json", "--quiet", "--out", tmp_path / "one").out)
    for seed in (0, 1):
        assert two["runs"][seed]["scores"] == pytest.approx(one["runs"][seed]["scores"], abs=0.01)
        weights = [load_file(tmp_path / out / f"seed-{seed}" / "model.safetensors") for out in ("one", "two")]
        for name, expected in weights[0].items():
            np.testing.assert_allclose(weights[1][name], expected, rtol=0, atol=1e-5, err_msg=name)
    files = [{str(file.relative_to(root)) for file in root.rglob("*")} for root in (tmp_path / "one", tmp_path / "two")]
    assert files[0] == files[1]


def test_only_train_runs_in_several_processes(classnorm, monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    outcome = classnorm("evaluate", "model", "glyphs")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "classnorm evaluate runs in one process" in outcome.err
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("RANK", "1")
    assert classnorm("evaluate", "model", "glyphs").err == ""  # the first process has said it


def test_other_launchers_do_not_make_processes_silent(classnorm, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert classnorm("--version").out.startswith("classnorm ")
