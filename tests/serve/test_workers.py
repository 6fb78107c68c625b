"""`classnorm serve` as it is started, with several workers."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import httpx
import pytest

from classnorm.scoring import Scorer


def children(process):
    """Processes of the workers."""
    listed = subprocess.run(["pgrep", "-P", str(process.pid), "-f", "spawn_main"], capture_output=True, text=True)
    return [int(line) for line in listed.stdout.split()]


@contextmanager
def started(model_folder, folder, workers, port=0):
    """A server as a process, and its address, once all workers run."""
    arguments = ["serve", str(model_folder), "--port", str(port), "--workers", str(workers)]
    arguments += ["--state", str(folder / "state"), "--models", str(folder / "saved")]
    log = folder / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen([sys.executable, "-m", "classnorm", *arguments], stderr=file) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while log.read_text().count("Application startup complete") < workers:
                assert time.monotonic() < deadline and process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield process, log.read_text().split("serving at ")[1].split()[0]
        finally:
            workers = children(process)
            process.kill()
            for child in workers:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)


def counted(address, path):
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f'classnorm_requests_total{{path="{path}"'))


@pytest.mark.slow
def test_workers_share_visitors_and_counters_and_are_replaced_when_they_die(model_folder, tmp_path):
    with started(model_folder, tmp_path, 2) as (process, address):
        check_workers(process, address)


def check_workers(process, address):
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


@pytest.mark.long
@pytest.mark.slow
def test_a_server_killed_under_load_leaves_whole_models_and_starts_again(model_folder, tmp_path, letters):
    document = {"features": letters.features[:4].tolist()}
    statuses, errors, stop = set(), set(), threading.Event()

    def ask(address, number):
        turn = 0
        while not stop.is_set():
            try:
                statuses.add(httpx.post(f"{address}/predict", json=document).status_code)
                turn += 1
                saved = httpx.post(f"{address}/save", json={"name": f"m{number}-{turn}"})
                statuses.add(saved.status_code)
            except Exception as error:
                errors.add(type(error))
                time.sleep(0.05)

    with started(model_folder, tmp_path, 1) as (process, address):
        clients = [threading.Thread(target=ask, args=(address, number)) for number in range(4)]
        for client in clients:
            client.start()
        time.sleep(1.5)
        process.kill()
        process.wait()
        time.sleep(0.3)
        stop.set()
        for client in clients:
            client.join()
    assert statuses <= {200, 201} and 201 in statuses
    assert errors and all(issubclass(error, httpx.TransportError) for error in errors)
    saved = [folder for folder in (tmp_path / "saved").iterdir() if not folder.name.startswith(".")]
    assert saved and all(Scorer.load(folder).class_names == letters.class_names for folder in saved)
    with started(model_folder, tmp_path, 1) as (_, address):
        assert httpx.post(f"{address}/save", json={"name": "after"}).status_code == 201
    assert not [folder for folder in (tmp_path / "saved").iterdir() if folder.name.startswith(".")]
