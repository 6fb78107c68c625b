"""`classnorm serve` as it is started, with several workers."""

import os
import signal
import subprocess
import sys
import time

import httpx
import pytest


def children(process):
    """Processes of the workers."""
    listed = subprocess.run(["pgrep", "-P", str(process.pid), "-f", "spawn_main"], capture_output=True, text=True)
    return [int(line) for line in listed.stdout.split()]


@pytest.fixture
def process(model_folder, tmp_path):
    arguments = ["serve", str(model_folder), "--port", "0", "--workers", "2", "--state", str(tmp_path / "state")]
    log = (tmp_path / "log").open("wb")
    with subprocess.Popen([sys.executable, "-m", "classnorm", *arguments], stderr=log) as process:
        yield process
        process.kill()
        for child in children(process):
            os.kill(child, signal.SIGKILL)


def address_of(process, tmp_path):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        log = (tmp_path / "log").read_text()
        if log.count("Application startup complete") == 2:
            return log.split("serving at ")[1].split()[0]
        time.sleep(0.1)
    raise AssertionError(log)


def counted(address, path):
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f'classnorm_requests_total{{path="{path}"'))


@pytest.mark.slow
def test_workers_share_visitors_and_counters_and_are_replaced_when_they_die(process, tmp_path):
    address = address_of(process, tmp_path)
    document = {"name": "mine", "like": "latin capital letter a", "changes": {"acute": 1}}
    key = httpx.post(f"{address}/classes", json=document).headers["x-classnorm-session"]

    def last_class():
        return httpx.get(f"{address}/classes", headers={"x-classnorm-session": key}).json()["classes"][-1]["class"]

    assert {last_class() for _ in range(20)} == {"mine"}  # on new connections, which either worker accepts
    assert counted(address, "/classes") == 21
    first = children(process)
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(set(children(process)) - {first[0]}) < 2:
        time.sleep(0.1)
    assert len(set(children(process)) - {first[0]}) == 2
    assert last_class() == "mine"
    assert counted(address, "/classes") == 22  # those of the worker that died still count
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert not children(process)
