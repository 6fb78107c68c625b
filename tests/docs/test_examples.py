"""The examples of the documentation run as they are printed."""

import ast
import os
import subprocess
import sys

import numpy as np
import pytest

from classnorm import fit
from classnorm.data import load
from classnorm.scoring.onnx_export import export_onnx

pytestmark = pytest.mark.slow


def test_the_method_of_the_documentation_trains_like_the_others(blocks, tmp_path):
    definition, use, layer = blocks("docs/methods.md")
    assert len(definition.strip().splitlines()) <= 50
    saved = 'scorer.save("model")\nfrom classnorm import Scorer\nprint(Scorer.load("model"))'
    script = "\n".join((layer, definition, use, saved))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made, loaded = done.stdout.splitlines()
    assert made == loaded
    assert "method='ridge', 340 seen and 86 unseen classes" in made


def test_the_command_line_finds_a_method_by_its_entry_point(blocks, tmp_path):
    (tmp_path / "my_package.py").write_text(blocks("docs/methods.md")[0], encoding="utf-8")
    info = tmp_path / "my_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n", encoding="utf-8")
    table = blocks("docs/methods.md", "toml")[0].splitlines()
    line = table[1].replace('"', "")
    (info / "entry_points.txt").write_text(f"[classnorm.methods]\n{line}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "classnorm", "train", "--method", "ridge", "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Weight of the ridge." in done.stdout


def test_the_stream_of_the_documentation_scores_a_model_of_ones_own(blocks, tmp_path):
    [script] = blocks("docs/continual.md")
    assert len([line for line in script.splitlines() if line.strip()]) <= 30
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = ast.literal_eval(done.stdout.splitlines()[0])
    assert set(summary) == {"mSA", "mUA", "mH", "mAUC", "mJA", "forgetting"}
    assert summary["mH"] > 10  # chance is about 0.2


def test_the_exported_model_of_the_documentation_classifies_and_takes_a_new_class(blocks, tmp_path):
    data = load("synthetic:classes=12,unseen=3,rows=240,features=16,attributes=8")
    scorer = fit(data, method="eszsl", calibration="bias:0.1")
    export_onnx(scorer, tmp_path / "mine.onnx")
    okapi = data.descriptors[:2].mean(axis=0)
    np.save(tmp_path / "features.npy", data.features[:9].astype(np.float16))
    np.save(tmp_path / "okapi.npy", okapi)
    script, *_ = blocks("docs/export.md")  # the second is of encoders inside
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = data.features[:9].astype(np.float16)
    expected = [scorer.predict(rows), scorer.add_classes({"okapi": okapi}).predict(rows)]
    assert [ast.literal_eval(line) for line in done.stdout.splitlines()] == expected
