"""The parallel engine: runs many tasks, each in its own folder, on local processes or a Ray cluster.

A task is finished when its folder contains its marker file, which is written last. There is no other state: running a
batch again runs the unfinished tasks, a killed worker loses only its current task, and two batches on the same folders
wait for each other task by task.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool

from classnorm.data import ZeroShotDataset
from classnorm.errors import ClassNormError, ConfigError, DivergedError
from classnorm.files import locked, make_folder, replacing, write_json
from classnorm.plugins import LoadedPlugins
from classnorm.progress import OnProgress, Progress

__all__ = ["ERROR", "Engine", "Failure", "Task", "failure", "finished", "run_converging", "run_tasks"]

ERROR = "error.json"


class Task(Protocol):
    """A frozen dataclass with a dataset; its name identifies everything that determines its result."""

    @property
    def dataset(self) -> ZeroShotDataset: ...

    @property
    def name(self) -> str:
        """Name of its folder."""

    @property
    def marker(self) -> str:
        """The file that `run` writes last."""

    def run(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class Failure:
    """The error of a task."""

    message: str
    kind: str = ""
    """Name of the exception class."""

    @property
    def diverged(self) -> bool:
        """Whether the training diverged, as it would again."""
        return self.kind == DivergedError.__name__


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Parallel execution of tasks."""

    backend: Literal["local", "ray"] = "local"
    """Run on processes of this machine or on a Ray cluster."""
    jobs: int = 0
    """Tasks to run at a time; 0 is one per core (local) or per CPU of the cluster (ray)."""
    address: str | None = None
    """Address of a running Ray cluster; by default a local cluster is started."""

    def run(self, tasks: Sequence[Task], root: Path) -> None:
        """Run the tasks in folders below `root`. It may end early if a worker dies."""
        if self.backend == "ray":
            _run_on_ray(self, tasks, root)
            return
        cores = os.cpu_count() or 1
        jobs = self.jobs or cores
        if jobs == 1:
            for task in tasks:
                perform(task, root / task.name, None)
            return
        # As many processes as cores, with one thread each, measured faster than fewer processes with more threads. The
        # last tasks of a batch get no more threads, since their number can change the last digits of a result.
        threads = max(1, cores // jobs)
        with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=threads):
            # joblib writes large arrays to a file that all processes map, instead of sending them with each task.
            work = joblib.delayed(_perform_in_worker)
            joblib.Parallel(batch_size=1)(work(LoadedPlugins(), task, root / task.name, threads) for task in tasks)


def finished(task: Task, root: Path) -> bool:
    return (root / task.name / task.marker).is_file()


def failure(task: Task, root: Path) -> Failure | None:
    """The recorded error of a task; None if it did not fail."""
    path = root / task.name / ERROR
    if not path.is_file():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    return Failure(str(document["error"]), str(document.get("kind", "")))


def run_converging(
    tasks: Sequence[Task], root: Path, engine: Engine, progress: OnProgress | None = None
) -> dict[str, Failure]:
    """Like `run_tasks`, but without retrying tasks that diverged before."""
    diverged = {task.name: error for task in tasks if (error := failure(task, root)) and error.diverged}
    return diverged | run_tasks([task for task in tasks if task.name not in diverged], root, engine, progress)


def _ended(task: Task, root: Path) -> bool:
    return finished(task, root) or (root / task.name / ERROR).is_file()


def run_tasks(
    tasks: Sequence[Task], root: Path, engine: Engine, progress: OnProgress | None = None
) -> dict[str, Failure]:
    """Run the unfinished tasks; return the failures by name.

    An error is recorded in the folder of its task (`error.json`) and does not stop other tasks. Running the batch again
    retries it.
    """
    make_folder(root)
    unique = {task.name: task for task in tasks}
    pending = [task for task in unique.values() if not finished(task, root)]
    for task in pending:
        (root / task.name / ERROR).unlink(missing_ok=True)
    with _watched(list(unique.values()), root, progress):
        while pending:
            before = len(pending)
            _survives(engine, pending, root)
            pending = [task for task in pending if not _ended(task, root)]
            if len(pending) == before:  # some task kills its worker: run them one by one to find it
                for task in pending:
                    survived = _survives(engine, [task], root)
                    if not _ended(task, root):
                        died = "its worker process died each time; is there enough memory?"
                        _record(root / task.name, Failure("it ended without a result" if survived else died))
                break
    return {name: error for name, task in unique.items() if (error := failure(task, root))}


def _survives(engine: Engine, tasks: Sequence[Task], root: Path) -> bool:
    """Run the tasks; return whether all workers survived."""
    try:
        engine.run(tasks, root)
    except (BrokenProcessPool, *_ray_errors()):
        return False
    return True


def _perform_in_worker(plugins: LoadedPlugins, task: Task, folder: Path, threads: int) -> None:
    """Run a task in a worker process. Unpickling `plugins`, the first argument, loads them before the task."""
    perform(task, folder, threads)


def perform(task: Task, folder: Path, threads: int | None) -> None:
    """Run a task in this process, unless another process has finished it."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    make_folder(folder)
    with locked(folder):
        if (folder / task.marker).is_file():
            return
        try:
            task.run(folder)
        except Exception as error:
            kind = type(error).__name__
            message = str(error) if isinstance(error, ClassNormError) else f"{kind}: {error}"
            _record(folder, Failure(message, kind), traceback.format_exc())


def _record(folder: Path, failed: Failure, trace: str = "") -> None:
    write_json(folder / ERROR, {"error": failed.message, "kind": failed.kind, "traceback": trace})


@contextmanager
def _watched(tasks: Sequence[Task], root: Path, progress: OnProgress | None) -> Iterator[None]:
    """Report the number of ended tasks while the batch runs, from their folders."""
    if progress is None:
        yield
        return
    stop = threading.Event()

    def count() -> None:
        progress(Progress(sum(_ended(task, root) for task in tasks), len(tasks)))

    def watch() -> None:
        while not stop.wait(0.5):
            count()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        count()


def _ray_errors() -> tuple[type[Exception], ...]:
    """Ray's errors for dead workers; none if Ray is not imported."""
    return (sys.modules["ray"].exceptions.RayError,) if "ray" in sys.modules else ()


def _run_on_ray(engine: Engine, tasks: Sequence[Task], root: Path) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    except ImportError as error:
        raise ConfigError("`backend=\"ray\"` needs Ray; pip install 'classnorm[ray]'") from error
    if not ray.is_initialized():
        settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        if engine.address is None:
            settings["num_cpus"] = engine.jobs or os.cpu_count() or 1
        try:
            _reach(engine.address)
            ray.init(address=engine.address or "local", **settings)  # without "local" Ray joins any cluster it finds
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            hint = "is it running, and does it need a token (RAY_AUTH_MODE=token)?"
            raise ConfigError(f"no Ray cluster at {engine.address}: {reason}; {hint}") from error
    register_ray()
    cpus = int(ray.cluster_resources().get("CPU", 1))
    jobs = min(engine.jobs or cpus, len(tasks))
    # Workers may be on other machines: an actor on this one receives their files.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    inbox = ray.remote(num_cpus=0, scheduling_strategy=here)(_Inbox).remote(str(root.resolve()))
    datasets = {id(task.dataset): task.dataset for task in tasks}
    references = {key: ray.put(dataset) for key, dataset in datasets.items()}  # sent once, not per task
    light = [(dataclasses.replace(task, dataset=None), references[id(task.dataset)]) for task in tasks]  # type: ignore[type-var]
    with joblib.parallel_config("ray", n_jobs=jobs):
        work = joblib.delayed(_perform_on_ray)
        joblib.Parallel(batch_size=1)(work(LoadedPlugins(), task, ref, inbox) for task, ref in light)


def _reach(address: str | None) -> None:
    """Raise at once if nothing listens at the address; Ray would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


class _Inbox:
    """Writes the files that workers send to the folders of their tasks, the marker last."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def deliver(self, name: str, files: dict[str, bytes]) -> None:
        for file, content in files.items():
            with replacing(self.root / name / file) as temporary:
                temporary.write_bytes(content)


def _perform_on_ray(plugins: LoadedPlugins, task: Any, dataset: Any, inbox: Any) -> None:
    """Like `_perform_in_worker`, on Ray; sends the files of the task to the inbox."""
    import ray

    complete = dataclasses.replace(task, dataset=ray.get(dataset))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "task"
        perform(complete, folder, 1)
        order = sorted(folder.iterdir(), key=lambda path: path.name == complete.marker)
        files = {path.name: path.read_bytes() for path in order if path.is_file()}
    ray.get(inbox.deliver.remote(complete.name, files))
