"""The examples of docs/scikit-learn.md run one after another, as they are printed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long


def test_the_page_runs(blocks, tmp_path):
    script = "\n".join(blocks("docs/scikit-learn.md"))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert float(told["harmonic"].removeprefix("mean ")) > 0.3  # chance: 0.03
    assert told["best"] == "128"
    assert float(told["accuracy"]) > 0.6
    assert told["31"] == "classes"
