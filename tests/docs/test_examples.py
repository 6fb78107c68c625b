"""The examples of the documentation run as they are printed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_method_of_the_documentation_trains_like_the_others(tmp_path, monkeypatch):
    definition, use = blocks("methods.md")
    assert len(definition.strip().splitlines()) <= 50
    script = (
        f'{definition}\n{use}\nscorer.save("model")\nfrom classnorm.methods import Scorer\nprint(Scorer.load("model"))'
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made, loaded = done.stdout.splitlines()
    assert made == loaded
    assert "method='ridge', 340 seen and 86 unseen classes" in made


def test_the_command_line_finds_a_method_by_its_entry_point(tmp_path):
    (tmp_path / "my_package.py").write_text(blocks("methods.md")[0], encoding="utf-8")
    info = tmp_path / "my_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n", encoding="utf-8")
    table = blocks("methods.md", "toml")[0].splitlines()
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


def test_the_stream_of_the_documentation_scores_a_model_of_ones_own(tmp_path):
    [script] = blocks("continual.md")
    assert len([line for line in script.splitlines() if line.strip()]) <= 30
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = ast.literal_eval(done.stdout.splitlines()[0])
    assert set(summary) == {"mSA", "mUA", "mH", "mAUC", "mJA", "forgetting"}
    assert summary["mH"] > 10  # chance is about 0.2
