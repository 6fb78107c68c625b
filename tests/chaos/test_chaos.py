"""A few of the faults of `make chaos`."""

import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).with_name("faults.py")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_nothing_is_lost_whatever_happens_to_a_command():
    done = subprocess.run([sys.executable, str(FAULTS), "--faults", "24"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all |" in done.stdout
