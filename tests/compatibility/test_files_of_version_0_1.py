"""Files that version 0.1 wrote are still read, give the same scores, and count as finished.

`v0.1/` is never written again: a change of format needs a reader for the old one.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from classnorm import ClassNormClassifier, Scorer
from classnorm.cli import main
from classnorm.data import load

OLD = Path(__file__).parent / "v0.1"
MODELS = sorted(folder.name for folder in (OLD / "models").iterdir())
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}  # other processors round products differently


@pytest.fixture(scope="module")
def data():
    return load(OLD / "data.npz")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy to work in; commands name the files as they did then."""
    shutil.copytree(OLD, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, command):
    capsys.readouterr()
    main(command.split())
    return capsys.readouterr().out


def modified(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_loads_with_its_scores(data, name):
    folder = OLD / "models" / name
    scores = Scorer.load(folder, "cpu").scores(data.features[data.test_rows[:20]])
    np.testing.assert_allclose(scores, np.load(folder / "expected.npz")["scores"], **TOLERANCE)


def test_an_estimator_loads_with_its_scores(data):
    rows = data.features[data.test_rows[:20]]
    expected = np.load(OLD / "estimator" / "expected.npz")
    loaded = ClassNormClassifier.load(OLD / "estimator", "cpu")
    np.testing.assert_allclose(loaded.decision_function(rows), expected["scores"], **TOLERANCE)
    assert loaded.seen_mask_.sum() == 7


def test_a_finished_run_counts_as_finished(old, capsys):
    before = modified(old / "run")
    command = "train data.npz --hidden 8 --epochs 3 --validation-splits 1 --seed 0 --out run --resume --json --quiet"
    document = json.loads(run(capsys, command))
    assert modified(old / "run") == before
    assert (
        document["mean"]["harmonic"] == json.loads((OLD / "run/seed-0/result.json").read_text())["scores"]["harmonic"]
    )


def test_a_run_can_be_reported_and_evaluated(old, capsys):
    run(capsys, "report run --out page")
    assert "classnorm · reference" in (old / "page" / "index.html").read_text(encoding="utf-8")
    scores = json.loads(run(capsys, "evaluate run/seed-0 data.npz --json --quiet"))["scores"]
    then = json.loads((OLD / "run/seed-0/result.json").read_text())["scores"]
    assert scores == {name: pytest.approx(value, abs=5.0) for name, value in then.items()}  # a row more or less


def test_a_finished_search_is_not_done_again(old, capsys):
    before = modified(old / "search" / "fits") | modified(old / "search" / "test")
    command = "search data.npz --sampler grid --space lr=1e-3,1e-2 --hidden 8 --epochs 2 --splits 1 --jobs 1"
    document = json.loads(run(capsys, f"{command} --out search --json --quiet"))
    assert modified(old / "search" / "fits") | modified(old / "search" / "test") == before
    assert len(document["trials"]) == 2


def test_a_recipe_trains(old, capsys):
    document = json.loads(run(capsys, "train data.npz --recipe search/recipe.json --out new --json --quiet"))
    assert document["config"] == json.loads((OLD / "search/recipe.json").read_text())["config"]


@pytest.mark.parametrize(
    ("folder", "flags"),
    [("continual", "--hidden 8 --epochs 1"), ("continual-analytic", "--strategy analytic --dimensions 6")],
)
def test_a_finished_stream_counts_as_finished(old, capsys, folder, flags):
    command = f"continual data.npz --tasks 3 {flags} --out {folder} --seed 0 --resume --json --quiet"
    then = json.loads((OLD / folder / "seed-0/continual.json").read_text())
    before = (old / folder / "seed-0" / "state.safetensors").stat().st_mtime_ns
    assert json.loads(run(capsys, command))["scores"] == then["scores"]
    assert (old / folder / "seed-0" / "state.safetensors").stat().st_mtime_ns == before


def test_an_artifact_can_be_reported(old, capsys):
    run(capsys, "report artifact --out page")
    assert "Correlations between attributes" in (old / "page" / "index.html").read_text(encoding="utf-8")
