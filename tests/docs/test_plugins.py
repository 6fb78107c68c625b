"""The plug-ins of the documentation run as they are printed."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow

DATA = "synthetic:classes=12,unseen=3,rows=240,features=16"


@pytest.fixture(scope="module")
def folder(blocks, tmp_path_factory):
    """A folder with the three files."""
    folder = tmp_path_factory.mktemp("plugins")
    strategy, encoder = blocks("docs/plugins.md")
    for name, text in (("ridge", blocks("docs/methods.md")[0]), ("first_task", strategy), ("histogram", encoder)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def classnorm(folder, *arguments):
    command = [sys.executable, "-m", "classnorm", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def document(folder, *arguments):
    done = classnorm(folder, *arguments, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_method_has_flags_trains_and_is_reported(blocks, folder):
    assert len([line for line in blocks("docs/methods.md")[0].splitlines() if line.strip()]) <= 42
    shown = classnorm(folder, "train", "--plugin", "ridge.py", "--method", "ridge", "--help")
    assert "--penalty" in shown.stdout
    run = document(folder, "train", DATA, "--plugin", "ridge.py", "--method", "ridge", "--penalty", 0.3, "--out", "run")
    assert run["config"]["penalty"] == 0.3
    report = classnorm(folder, "report", "run", "--out", "page")
    assert "ridge · reference" in report.stdout


def test_its_search_space_is_searched_in_two_processes(folder):
    arguments = ("--method", "ridge", "--sampler", "grid", "--splits", 1, "--jobs", 2, "--out", "search")
    found = document(folder, "search", DATA, "--plugin", "ridge.py", *arguments)
    assert [trial["settings"]["penalty"] for trial in found["trials"]] == [0.01, 1.0, 100.0]
    assert all(trial["state"] == "complete" for trial in found["trials"])


def test_a_model_does_not_load_its_plug_in_by_itself(folder):
    document(folder, "train", DATA, "--plugin", "ridge.py", "--method", "ridge", "--out", "model")
    without = classnorm(folder, "evaluate", "model/seed-0", DATA)
    assert without.returncode == 2
    assert "--plugin" in without.stderr
    assert document(folder, "evaluate", "model/seed-0", DATA, "--plugin", "ridge.py")["method"] == "ridge"


def test_the_strategy_learns_its_first_task_alone(folder):
    arguments = ("--strategy", "first-task", "--tasks", 3, "--out", "stream", "--epochs", 3, "--lr", 0.01)
    run = document(folder, "continual", DATA, "--plugin", "first_task.py", *arguments)
    [first] = run["runs"]
    matrix = np.array(first["matrix"], dtype=float)
    assert (matrix[-1] == matrix[-2]).all()  # nothing changes after the first task


def test_the_encoder_makes_features(folder, write_image):
    for number in range(6):
        write_image(folder / "photos" / f"class_{number % 2}" / f"{number}.png")
    done = classnorm(
        folder, "extract", "photos", "--plugin", "histogram.py", "--encoder", "histogram", "--out", "f.npz"
    )
    assert done.returncode == 0, done.stderr
    features = np.load(folder / "f.npz")["features"]
    assert features.shape == (6, 24)
    np.testing.assert_allclose(features.sum(axis=1), 3.0, rtol=1e-5)  # a histogram of each colour
