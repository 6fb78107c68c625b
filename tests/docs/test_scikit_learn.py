"""The examples of docs/scikit-learn.md run one after another, as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"


def test_the_page_runs(tmp_path):
    script = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert float(told["harmonic"].removeprefix("mean ")) > 0.3  # chance: 0.03
    assert told["best"] == "128"
    assert float(told["accuracy"]) > 0.6
    assert told["31"] == "classes"
