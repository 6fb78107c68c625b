"""The engine: what is finished stays finished, what fails is recorded, what dies is tried again."""

import json
import os
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, DivergedError
from classnorm.methods import resolve
from classnorm.results.run_folder import is_finished
from classnorm.runs.engine import ERROR, Engine, Failure, run_tasks
from classnorm.runs.experiment import Experiment


@dataclass(frozen=True)
class Note:
    """A task that writes down who ran it, and misbehaves on request."""

    dataset: ZeroShotDataset
    number: int
    fail: bool = False
    die_in: str = ""  # a folder; the first worker to get there dies
    seconds: float = 0.0
    marker = "note.json"

    @property
    def name(self):
        return f"task-{self.number}"

    def run(self, folder: Path):
        if self.die_in:
            flag = Path(self.die_in) / f"died-{self.number}"
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if self.fail:
            raise ValueError("this one cannot work")
        time.sleep(self.seconds)
        checksum = float(np.asarray(self.dataset.features, dtype=np.float64).sum())
        with (folder / "log.txt").open("a") as log:
            log.write("ran\n")
        (folder / self.marker).write_text(json.dumps({"pid": os.getpid(), "checksum": checksum}))


@dataclass(frozen=True)
class Threads(Note):
    """A task that writes down how many threads it has."""

    def run(self, folder: Path):
        import torch

        (folder / self.marker).write_text(json.dumps({"threads": torch.get_num_threads()}))


@pytest.mark.slow
def test_the_number_of_threads_does_not_depend_on_how_many_tasks_are_left(data, tmp_path):
    run_tasks([Threads(data, n) for n in range(5)], tmp_path / "many", Engine(jobs=2))
    run_tasks([Threads(data, 4)], tmp_path / "one", Engine(jobs=2))
    assert notes(tmp_path / "one", [Threads(data, 4)]) == notes(tmp_path / "many", [Threads(data, 4)])


def notes(root, tasks):
    return [json.loads((root / task.name / "note.json").read_text()) for task in tasks]


BACKENDS = {"one process": Engine(jobs=1), "two processes": Engine(jobs=2)}


@pytest.mark.parametrize("engine", BACKENDS.values(), ids=BACKENDS)
def test_every_task_runs_once_with_the_data(data, tmp_path, engine):
    tasks = [Note(data, n) for n in range(6)]
    assert run_tasks(tasks, tmp_path, engine) == {}
    expected = float(data.features.astype(np.float64).sum())
    assert [note["checksum"] for note in notes(tmp_path, tasks)] == [expected] * 6
    assert all((tmp_path / task.name / "log.txt").read_text() == "ran\n" for task in tasks)


def test_two_jobs_are_two_other_processes(data, tmp_path):
    tasks = [Note(data, n, seconds=0.3) for n in range(4)]
    run_tasks(tasks, tmp_path, Engine(jobs=2))
    processes = {note["pid"] for note in notes(tmp_path, tasks)}
    assert len(processes) == 2
    assert os.getpid() not in processes


@pytest.mark.parametrize("engine", BACKENDS.values(), ids=BACKENDS)
def test_a_finished_task_is_not_run_again(data, tmp_path, engine):
    tasks = [Note(data, n) for n in range(4)]
    run_tasks(tasks[:2], tmp_path, engine)
    run_tasks(tasks, tmp_path, engine)
    assert all((tmp_path / task.name / "log.txt").read_text() == "ran\n" for task in tasks)


@pytest.mark.parametrize("engine", BACKENDS.values(), ids=BACKENDS)
def test_a_failed_task_is_recorded_and_does_not_stop_the_others(data, tmp_path, engine):
    tasks = [Note(data, n, fail=n == 1) for n in range(4)]
    assert run_tasks(tasks, tmp_path, engine) == {"task-1": Failure("ValueError: this one cannot work", "ValueError")}
    assert [is_finished(tmp_path / task.name, task.marker) for task in tasks] == [True, False, True, True]
    assert "Traceback" in json.loads((tmp_path / "task-1" / ERROR).read_text())["traceback"]


def test_a_failed_task_is_tried_again_next_time(data, tmp_path):
    run_tasks([Note(data, 0, fail=True)], tmp_path, Engine(jobs=1))
    assert run_tasks([Note(data, 0)], tmp_path, Engine(jobs=1)) == {}
    assert not (tmp_path / "task-0" / ERROR).exists()


@pytest.mark.slow
def test_a_killed_worker_loses_no_finished_task_and_its_own_is_tried_again(data, tmp_path):
    tasks = [Note(data, n, die_in=str(tmp_path) if n == 3 else "") for n in range(6)]
    assert run_tasks(tasks, tmp_path / "root", Engine(jobs=2)) == {}
    assert (tmp_path / "died-3").exists()
    assert all((tmp_path / "root" / task.name / "log.txt").read_text() == "ran\n" for task in tasks)


@dataclass(frozen=True)
class Deadly(Note):
    """A task that no worker survives."""

    def run(self, folder: Path):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_task_that_no_worker_survives_is_given_up_and_the_others_are_done(data, tmp_path):
    tasks = [Note(data, 0), Deadly(data, 1), Note(data, 2)]
    failed = run_tasks(tasks, tmp_path, Engine(jobs=2))
    assert list(failed) == ["task-1"]
    assert "died" in failed["task-1"].message
    assert [is_finished(tmp_path / task.name, task.marker) for task in tasks] == [True, False, True]


@dataclass(frozen=True)
class Forgetful(Note):
    """A task that ends without writing its result."""

    def run(self, folder: Path):
        pass


def test_a_task_that_leaves_no_result_counts_as_failed(data, tmp_path):
    failed = run_tasks([Forgetful(data, 0), Note(data, 1)], tmp_path, Engine(jobs=1))
    assert failed == {"task-0": Failure("it ended without a result")}


@pytest.mark.slow
def test_two_batches_on_the_same_folders_do_not_run_a_task_twice(data, tmp_path):
    tasks = [Note(data, n, seconds=0.1) for n in range(6)]
    batches = [threading.Thread(target=run_tasks, args=(tasks, tmp_path, Engine(jobs=2))) for _ in range(1)]
    for batch in batches:
        batch.start()
    run_tasks(tasks, tmp_path, Engine(jobs=1))
    for batch in batches:
        batch.join()
    assert all((tmp_path / task.name / "log.txt").read_text() == "ran\n" for task in tasks)


def test_progress_counts_up_to_all_tasks(data, tmp_path, watching):
    seen = []
    tasks = [Note(data, n, seconds=0.4) for n in range(4)]
    with watching(lambda _, step: seen.append((step.done, step.total))):
        run_tasks(tasks, tmp_path, Engine(jobs=2))
    assert seen[-1] == (4, 4)
    assert seen == sorted(seen)
    assert len(seen) > 1


def experiments(data, n=4):
    _, config = resolve(data, hidden=32, epochs=3, calibration="none")
    return [Experiment(data, "classnorm", "reference", config, seed) for seed in range(n)]


def test_the_key_of_an_experiment_names_all_that_decides_its_result(data):
    base = experiments(data, 1)[0]
    other_data = replace(data, features=data.features + 1)
    variants = [
        replace(base, seed=1),
        replace(base, config=base.config.replace(lr=1e-3)),
        replace(base, config=base.config.replace(calibration="scale:0.9")),
        replace(base, dataset=other_data),
    ]
    assert len({base.key, *(variant.key for variant in variants)}) == 5
    assert replace(base, recipe="another name").key == base.key


def test_a_ray_cluster_that_is_not_there_is_a_clear_error(data, tmp_path):
    pytest.importorskip("ray", reason="skipped: Ray is not installed")
    with pytest.raises(ConfigError, match=r"no Ray cluster at 127\.0\.0\.1:1"):
        run_tasks([Note(data, 0)], tmp_path, Engine(backend="ray", address="127.0.0.1:1"))


@dataclass(frozen=True)
class Diverging(Note):
    """Diverges, and counts how often it was tried."""

    def run(self, folder):
        with (folder / "tries.txt").open("a") as file:
            file.write("tried\n")
        raise DivergedError("training diverged: the loss is not finite")


def test_a_task_that_diverged_is_not_tried_again_one_that_failed_otherwise_is(data, tmp_path):
    tasks = [Diverging(data, 0), Note(data, 1, fail=True)]
    for _ in range(2):
        failed = run_tasks(tasks, tmp_path, Engine(jobs=1), repeat_diverged=False)
        assert [failed[task.name].diverged for task in tasks] == [True, False]
    assert (tmp_path / "task-0" / "tries.txt").read_text() == "tried\n"
    assert json.loads((tmp_path / "task-0" / ERROR).read_text())["kind"] == "DivergedError"
    again = run_tasks([tasks[0], Note(data, 1)], tmp_path, Engine(jobs=1), repeat_diverged=False)
    assert again.keys() == {"task-0"}


def test_the_address_of_a_cluster_needs_the_backend_ray():
    with pytest.raises(ConfigError, match='`address` names a Ray cluster; add `backend="ray"`'):
        Engine(address="127.0.0.1:6379")
