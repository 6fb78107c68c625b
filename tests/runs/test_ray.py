"""A real Ray cluster of two nodes on this machine: nodes that die, join late, and a head that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from classnorm.cli import main
from classnorm.data import SyntheticConfig, ZeroShotDataset, load, save_bundle, save_folder, synthetic
from classnorm.encoders import load_encoder
from classnorm.errors import ConfigError, DataError
from classnorm.methods import method_named, resolve
from classnorm.preparation import extraction
from classnorm.results.run_folder import Result
from classnorm.runs import cluster
from classnorm.runs.engine import Engine, Failure, run_tasks
from classnorm.runs.experiment import Experiment
from classnorm.runs.search import SearchConfig, search

ray = pytest.importorskip("ray", reason="skipped: Ray is not installed")
Cluster = pytest.importorskip("ray.cluster_utils").Cluster
pytestmark = pytest.mark.slow
ONE_CPU = {"num_cpus": 1, "include_dashboard": False}


class Nodes:
    """A cluster whose nodes have one CPU each."""

    def __init__(self) -> None:
        self.start()

    def start(self, **settings: Any) -> None:
        self.cluster = Cluster(True, False, {**ONE_CPU, **settings})
        self.nodes = [self.cluster.head_node]

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    @property
    def engine(self) -> Engine:
        return Engine(backend="ray", address=self.address)

    def join(self) -> None:
        self.nodes.append(self.cluster.add_node(**ONE_CPU))

    def kill(self, node: Any) -> None:
        """Kill the processes of a node, as a power cut would."""
        for processes in node.all_processes.values():
            for process in processes:
                if process.process.poll() is None:
                    os.kill(process.process.pid, signal.SIGKILL)
        self.nodes.remove(node)

    def stop(self) -> None:
        for node in list(self.nodes):
            self.kill(node)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    running = Nodes()
    yield running
    ray.shutdown()
    running.stop()


@pytest.fixture(scope="module")
def data() -> ZeroShotDataset:
    return synthetic(SyntheticConfig(classes=24, unseen=6, rows=480, features=16, attributes=12))


def total(dataset: ZeroShotDataset) -> float:
    return float(np.asarray(dataset.features).astype(np.float64).sum())


@dataclass(frozen=True)
class Where:
    """A task that writes down the node that ran it, and its copy of the data."""

    dataset: ZeroShotDataset
    number: int
    fail: bool = False
    together: str = ""  # a folder in which two tasks wait for each other
    marker = "where.json"

    @property
    def name(self) -> str:
        return f"task-{self.number:02d}"

    def run(self, folder: Path) -> None:
        if self.fail:
            raise ValueError("this one cannot work")
        if self.together:
            (Path(self.together) / self.name).mkdir(parents=True)
            while len(list(Path(self.together).iterdir())) < 2:
                time.sleep(0.05)
        document = {
            "node": ray.get_runtime_context().get_node_id(),
            "folder": str(Path.cwd()),
            "dataset": [os.getpid(), id(self.dataset)],
            "sum": total(self.dataset),
        }
        (folder / self.marker).write_text(json.dumps(document))


def read(root: Path, tasks: list[Where]) -> list[dict[str, Any]]:
    return [json.loads((root / task.name / task.marker).read_text()) for task in tasks]


def when(condition: Callable[[], bool], action: Callable[[], object]) -> threading.Thread:
    """Do something in the background as soon as a condition holds."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def count(root: Path, marker: str) -> int:
    return len(list(root.glob(f"*/{marker}")))


def test_the_data_is_sent_once_and_a_node_that_joins_late_is_used(nodes, data, tmp_path, monkeypatch):
    sent: list[object] = []
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda value: (sent.append(value), put(value))[1])
    first = [Where(data, n) for n in range(4)]
    second = [Where(data, n, together=str(tmp_path / "arrived")) for n in (4, 5)]  # no node can run both
    assert run_tasks(first, tmp_path, nodes.engine) == {}
    assert len({note["node"] for note in read(tmp_path, first)}) == 1
    batch = threading.Thread(target=run_tasks, args=(second, tmp_path, nodes.engine))
    batch.start()
    nodes.join()
    batch.join()
    notes = read(tmp_path, first + second)
    assert sent == [data]  # once for both batches
    assert len({note["node"] for note in notes}) == 2
    assert {note["folder"] for note in notes} == {str(Path.cwd())}  # relative paths mean the same there
    assert {note["sum"] for note in notes} == {total(data)}
    assert len({tuple(note["dataset"]) for note in notes}) == 2  # each worker process keeps it


def test_features_that_stay_in_files_travel_as_their_path(nodes, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_folder(data, Path("bundle"))
    stored = load("bundle")
    assert run_tasks([Where(stored, 0)], tmp_path, nodes.engine) == {}
    assert read(tmp_path, [Where(stored, 0)])[0]["sum"] == total(data)
    assert len(ray.cloudpickle.dumps(stored.features)) < data.features.nbytes / 10


def test_runs_on_the_cluster_have_the_scores_and_files_of_local_ones(nodes, data, tmp_path, one_thread):
    _, config = resolve(data, hidden=32, epochs=3, calibration="none")
    runs = [Experiment(data, "classnorm", "reference", config, seed) for seed in range(3)]
    for name, engine in (("local", Engine(jobs=1)), ("ray", nodes.engine)):
        assert run_tasks([*runs, Where(data, 0, fail=True)], tmp_path / name, engine) == {
            "task-00": Failure("ValueError: this one cannot work", "ValueError")
        }
    for run in runs:
        local, there = (Result.read(tmp_path / name / run.name) for name in ("local", "ray"))
        assert local.scores == there.scores
        assert {path.name for path in local.folder.iterdir()} == {path.name for path in there.folder.iterdir()}


@dataclass(frozen=True)
class Deadly(Where):
    """A task that no worker survives."""

    def run(self, folder: Path) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_kills_its_workers_is_recorded_and_the_others_are_done(nodes, data, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_RETRIES", 1)
    tasks = [Where(data, 0), Deadly(data, 1), Where(data, 2)]
    died = Failure("its worker process died each time; is there enough memory?")
    assert run_tasks(tasks, tmp_path, nodes.engine) == {"task-01": died}
    assert count(tmp_path, "where.json") == 2


def test_more_gpus_than_the_cluster_has_are_refused(nodes, data, tmp_path):
    with pytest.raises(ConfigError, match="`gpus` is 1, but the Ray cluster has 0"):
        run_tasks([Where(data, 0)], tmp_path, Engine(backend="ray", address=nodes.address, gpus=1))


def test_a_search_of_60_trials_with_a_node_killed_midway_finds_what_one_process_finds(
    nodes, data, tmp_path, one_thread, capfd
):
    _, base = resolve(data, "eszsl", calibration="validation")
    config, space = SearchConfig(trials=60, batch=10, splits=1), method_named("eszsl").space
    whole = search(data, "eszsl", base, space, config, tmp_path / "whole", Engine(jobs=1))
    node = nodes.nodes[-1]
    done: list[int] = []

    def kill() -> None:
        nodes.kill(node)
        done.append(count(tmp_path / "killed", "sides.npz"))

    killing = when(lambda: count(tmp_path / "killed", "sides.npz") >= 25, kill)
    killed = search(data, "eszsl", base, space, config, tmp_path / "killed", nodes.engine)
    killing.join()
    assert 25 <= done[0] < 60
    assert len(killed[0]) == 60
    assert killed == whole
    assert capfd.readouterr().out == ""  # where --json prints


def test_searches_at_the_same_time_find_what_they_find_one_after_another(nodes, data, tmp_path, one_thread):
    def find(engine: Engine, method: str) -> object:
        _, base = resolve(data, method, calibration="validation")
        config = SearchConfig(trials=4, batch=2, splits=1)
        root = tmp_path / engine.backend / method
        return search(data, method, base, method_named(method).space, config, root, engine)

    outcomes = [engine.together(partial(find, engine), ["eszsl", "sae"]) for engine in (Engine(jobs=1), nodes.engine)]
    assert outcomes[0] == outcomes[1]
    with pytest.raises(ConfigError, match="unknown method 'nothing'"):
        nodes.engine.together(partial(find, nodes.engine), ["nothing"])


def test_extract_on_the_cluster_writes_the_bundle_of_one_process(nodes, tmp_path, capsys, monkeypatch, one_thread):
    generator = np.random.default_rng(0)
    for row in range(40):
        path = tmp_path / "zoo" / ("ant", "bee", "cow")[row % 3] / f"{row:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (20, 26, 3), dtype=np.uint8)).save(path)
    (tmp_path / "zoo" / "ant" / "broken.png").write_bytes(b"no image")
    monkeypatch.chdir(tmp_path)  # workers have another folder: the paths of the images must not depend on it
    small = ["--encoder", "convnet", "--size", "16", "--batch-size", "1", "--quiet"]
    main(["extract", "zoo", "--out", "here.npz", *small])
    main(["extract", "zoo", "--out", "there.npz", *small, "--backend", "ray", "--address", nodes.address])
    with np.load("here.npz") as here, np.load("there.npz") as there:
        assert here.files == there.files
        for name in here.files:
            np.testing.assert_array_equal(here[name], there[name], err_msg=name)
    other = extraction._Piece([tmp_path / "zoo" / "ant" / "broken.png"], [999])
    with pytest.raises(DataError, match=r"broken\.png: missing or different on the worker"):
        extraction._encode_piece(extraction.Encoding(load_encoder("convnet")), other)
    with pytest.raises(SystemExit, match="2"):
        main(["extract", "zoo", "--out", "x.npz", *small, "--backend", "ray", "--device", "cpu"])
    assert "--gpus says whether workers use their GPUs" in capsys.readouterr().err


def test_a_head_that_dies_ends_a_search_with_one_line_and_the_same_command_goes_on(nodes, data, tmp_path, capsys):
    ray.shutdown()
    save_bundle(data, tmp_path / "data.npz")
    fits = tmp_path / "out" / "fits"
    command = ["search", str(tmp_path / "data.npz"), "--method", "eszsl", "--trials", "60", "--json", "--quiet"]
    command += ["--splits", "1", "--out", str(tmp_path / "out"), "--backend", "ray", "--address", nodes.address]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-m", "classnorm", *command], **pipes) as victim:
        killing = when(lambda: count(fits, "sides.npz") >= 6, nodes.stop)
        out, err = victim.communicate(timeout=100)
    killing.join()
    lost = f"classnorm: error: lost the Ray cluster at {nodes.address}; restart it and run the same command again: "
    assert (victim.returncode, out, err) == (2, "", f"{lost}it goes on from here\n")
    done = {path: path.stat().st_mtime_ns for path in fits.glob("*/sides.npz")}
    assert 6 <= len(done) < 60
    nodes.start(gcs_server_port=int(nodes.address.rpartition(":")[2]))
    main(command)
    assert len(json.loads(capsys.readouterr().out)["trials"]) == 60
    assert all(path.stat().st_mtime_ns == moment for path, moment in done.items())  # nothing was done twice


def test_a_local_cluster_listens_on_the_loopback_address_only(tmp_path):
    script = (
        "import ray\nfrom classnorm.runs.cluster import Cluster\n"
        "Cluster(jobs=1).connect()\n"
        "ray.get(ray.remote(lambda: 1).remote())\n"
        "[node] = ray.nodes()\nprint(node['NodeManagerAddress'])\n"
        "import psutil\n"
        "family = [psutil.Process(), *psutil.Process().children(recursive=True)]\n"
        "print(*{c.laddr.ip for p in family for c in p.net_connections('tcp') if c.status == 'LISTEN'})\n"
    )
    pytest.importorskip("psutil")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    address, listening = done.stdout.splitlines()
    assert address == "127.0.0.1"
    assert set(listening.split()) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
