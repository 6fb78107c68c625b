"""What importing the package does."""

import os
import subprocess
import sys

import pytest

SCRIPT = "import classnorm, os, sys; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"


@pytest.mark.parametrize(
    ("variables", "spin_count"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_spin_briefly_unless_told_otherwise_and_pytorch_is_not_loaded(variables, spin_count):
    inherited = {name: v for name, v in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=inherited | variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [spin_count, "False"]
