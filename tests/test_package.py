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


IMPORT_ALL = """
import builtins, importlib, pkgutil
real = builtins.__import__
POSIX = {"resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix"}
def without_posix(name, globals=None, *rest):
    importer = (globals or {}).get("__name__") or ""
    if importer.split(".")[0] in ("classnorm", "classnorm_lab") and name.split(".")[0] in POSIX:
        raise ModuleNotFoundError(f"{importer} imports {name}")
    return real(name, globals, *rest)
builtins.__import__ = without_posix
import classnorm, classnorm_lab
names = [
    info.name
    for package in (classnorm, classnorm_lab)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if "__main__" not in info.name
]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.slow
def test_every_module_can_be_imported_where_there_is_no_posix():
    """As on Windows; libraries that classnorm uses have their own ways there."""
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 200
