"""Signals, and environments that are not made for the program: one line each, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, save_bundle, synthetic
from classnorm.io.files import locked, replacing, write_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and devices of POSIX")
CLASSNORM = [sys.executable, "-m", "classnorm"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.npz"
    save_bundle(synthetic(SyntheticConfig(classes=20, unseen=5, rows=4000, features=64, attributes=10)), path)
    return path


def start(*arguments, **settings):
    command = [*CLASSNORM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def children(process):
    """Processes whose parent it is, and theirs."""
    found = [process]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == process:
            found += children(int(entry.name))
    return found


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    assert condition()


def search(bundle, out):
    settings = ["--hidden", 512, "--epochs", 2000, "--jobs", 2, "--sampler", "grid", "--space", "lr=1e-4,1e-3,1e-2"]
    return ["search", bundle, *settings, "--splits", 1, "--out", out, "--quiet"]


def has_started(out):
    return lambda: len(list((out / "fits").glob(".*.lock"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_stops_a_parallel_command_soon_with_one_line(bundle, tmp_path, number):
    process = start(*search(bundle, tmp_path / "out"), start_new_session=True)
    wait_for(has_started(tmp_path / "out"))
    family = children(process.pid)
    sent = time.monotonic()
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - sent < 8  # two seconds on a machine that is not busy
    assert err == "classnorm: interrupted; to continue, run the same command again\n"
    assert (process.returncode, out) == (128 + number, "")
    wait_for(lambda: not any(map(is_running, family)), 10)


@pytest.mark.slow
def test_workers_that_are_still_starting_say_nothing_at_an_interruption(bundle, tmp_path):
    process = start(*search(bundle, tmp_path / "out"), start_new_session=True)
    wait_for(lambda: any(b"popen_loky" in command_line(child) for child in children(process.pid)))
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert err == "classnorm: interrupted; to continue, run the same command again\n"


def test_ctrl_c_prints_no_traceback_when_the_command_has_ended():
    script = "import sys, time\nfrom classnorm.cli import main\nmain()\nprint('ended', flush=True)\ntime.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while process.stdout.readline() not in ("ended\n", ""):
        pass
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=30)[1], process.returncode) == ("", -signal.SIGINT)


def command_line(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["they start", "they work"])
def test_workers_do_not_outlive_a_killed_parent(bundle, tmp_path, moment):
    process = start(*search(bundle, tmp_path / "out"))
    begun = {
        "they start": lambda: sum(b"popen_loky" in command_line(child) for child in children(process.pid)) == 2,
        "they work": has_started(tmp_path / "out"),
    }
    wait_for(begun[moment])
    family = children(process.pid)
    assert len(family) >= 3
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(is_running, family)), 20)


def test_what_a_killed_writer_left_is_swept_by_the_next(tmp_path):
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom classnorm.io.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as temporary:\n    temporary.write_text('half')\n    os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.json")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    with replacing(tmp_path / "a.json") as mine:  # that of a living process stays
        write_text(tmp_path / "a.json", "other")
        mine.write_text("whole")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "whole")]


def test_processes_with_different_temporary_directories_exclude_each_other(tmp_path):
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom classnorm.io.files import locked\n"
        "for _ in range(30):\n"
        "    with locked(Path(sys.argv[1]) / 'run'), locked(Path(sys.argv[1]) / 'run'):\n"
        "        mark = Path(sys.argv[1]) / 'inside'\n"
        "        mark.touch(exist_ok=False)\n        time.sleep(0.002)\n        mark.unlink()\n"
    )
    temporary = [tmp_path / name for name in "abc"]
    for folder in temporary:
        folder.mkdir()
    work = tmp_path / "work"
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(work)], env=os.environ | {"TMPDIR": str(folder)})
        for folder in temporary
    ]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert list(work.iterdir()) == []  # no lock is left


def test_a_lock_that_nobody_holds_is_gone(tmp_path):
    with locked(tmp_path / "x"):
        assert [path.name for path in tmp_path.iterdir()] == [".x.lock"]
    assert list(tmp_path.iterdir()) == []


def outcome(*arguments, **settings):
    done = subprocess.run([*CLASSNORM, *map(str, arguments)], capture_output=True, text=True, timeout=120, **settings)
    return done.returncode, done.stderr


TRAIN = ["--hidden", 8, "--epochs", 1, "--calibration", "none", "--quiet"]


def test_output_on_a_full_disk_is_one_line(bundle):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*CLASSNORM, "data", "check", str(bundle), "--json"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (2, "classnorm: error: cannot go on: No space left on device\n")


def test_a_terminal_that_knows_only_ascii_shows_escapes(bundle):
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code, err = outcome("data", "check", bundle, env=environment)
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_a_deleted_working_directory_is_one_line(bundle, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); from classnorm.cli import main; main()"
    command = [sys.executable, "-c", script, "train", str(bundle), *map(str, TRAIN)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith("classnorm: error: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_name_that_is_too_long_for_a_file_is_one_line(bundle, tmp_path):
    code, err = outcome("train", bundle, *TRAIN, "--out", tmp_path / ("x" * 300))
    assert code == 2 and "File name too long" in err and len(err.splitlines()) == 1
    code, err = outcome("data", "check", "y" * 300)
    assert code == 2 and len(err.splitlines()) == 1


@pytest.mark.slow
def test_a_user_without_a_name_can_train(bundle, tmp_path):
    """As with `docker run --user 12345`."""
    names = ("USER", "LOGNAME", "LNAME", "USERNAME")
    environment = {key: value for key, value in os.environ.items() if key not in names} | {"HOME": "/nonexistent"}
    script = (
        "import pwd\ndef unknown(number):\n    raise KeyError(f'getpwuid(): uid not found: {number}')\n"
        "pwd.getpwuid = unknown\nfrom classnorm.cli import main\nmain()"
    )
    command = [sys.executable, "-c", script, "train", str(bundle), *map(str, TRAIN), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_no_temporary_directory_is_one_line_or_no_matter(bundle, tmp_path):
    environment = os.environ | {"TMPDIR": "/nonexistent"}
    code, err = outcome("train", bundle, *TRAIN, "--out", tmp_path / "run", env=environment)
    assert (code, err) == (0, "")
    np.load(tmp_path / "run" / "seed-0" / "predictions.npz")
