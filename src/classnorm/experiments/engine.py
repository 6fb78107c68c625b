"""The parallel engine: many tasks, each with a folder of its own, on local processes or a Ray cluster.

A task is finished when its folder holds its marker file, which is written last. So nothing else has to be remembered:
running a batch again does what is missing, a killed worker costs the task it was at, and two batches on the same
folders wait for each other task by task.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import joblib
import torch
from joblib.externals.loky.process_executor import BrokenProcessPool

from classnorm.data import ZeroShotDataset
from classnorm.errors import ClassNormError, ConfigError, DivergedError
from classnorm.files import locked, make_folder, replacing, write_json
from classnorm.plugins import LoadedPlugins
from classnorm.progress import OnProgress, Progress

__all__ = ["ERROR", "Engine", "Failure", "Task", "failure", "finished", "run_converging", "run_tasks"]

ERROR = "error.json"


class Task(Protocol):
    """A frozen dataclass with a dataset, a name that says everything that decides its result, and a `run`."""

    @property
    def dataset(self) -> ZeroShotDataset: ...

    @property
    def name(self) -> str:
        """Name of its folder."""
        ...

    @property
    def marker(self) -> str:
        """The file that its run writes last."""
        ...

    def run(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class Failure:
    """Why a task has no result."""

    message: str
    kind: str = ""
    """Name of the error's class."""

    @property
    def diverged(self) -> bool:
        """Whether the training diverged: the same task would do so again."""
        return self.kind == DivergedError.__name__


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where tasks run."""

    backend: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    jobs: int = 0
    """Tasks at a time; 0 is one per core (local) or per CPU of the cluster (ray)."""
    address: str | None = None
    """Address of a running Ray cluster; without one a local cluster is started."""

    def run(self, tasks: Sequence[Task], root: Path) -> None:
        """Run the tasks into folders below `root`. May end early if a worker dies."""
        if self.backend == "ray":
            _run_on_ray(self, tasks, root)
            return
        cores = os.cpu_count() or 1
        if (self.jobs or cores) == 1:
            for task in tasks:
                perform(task, root / task.name, None)
            return
        # One thread a process where there are as many processes as cores: measured faster than fewer, wider ones. The
        # last tasks of a batch get no more, since another number of threads could change the last digits.
        jobs = self.jobs or cores
        threads = max(1, cores // jobs)
        with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=threads):
            # joblib writes large arrays to a file once and lets every process map it: data is not shipped per task.
            work = joblib.delayed(_perform_elsewhere)
            joblib.Parallel(batch_size=1)(work(LoadedPlugins(), task, root / task.name, threads) for task in tasks)


def finished(task: Task, root: Path) -> bool:
    return (root / task.name / task.marker).is_file()


def failure(task: Task, root: Path) -> Failure | None:
    """Why a task failed, None if it did not."""
    path = root / task.name / ERROR
    if not path.is_file():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    return Failure(str(document["error"]), str(document.get("kind", "")))


def run_converging(
    tasks: Sequence[Task], root: Path, engine: Engine, progress: OnProgress | None = None
) -> dict[str, Failure]:
    """As `run_tasks`, but a task that diverged before is not tried again: it would diverge again."""
    diverged = {task.name: old for task in tasks if (old := failure(task, root)) and old.diverged}
    return diverged | run_tasks([task for task in tasks if task.name not in diverged], root, engine, progress)


def _ended(task: Task, root: Path) -> bool:
    return finished(task, root) or (root / task.name / ERROR).is_file()


def run_tasks(
    tasks: Sequence[Task], root: Path, engine: Engine, progress: OnProgress | None = None
) -> dict[str, Failure]:
    """Do what is not finished yet; return the tasks that failed, by name.

    A task that raises is recorded in its folder (`error.json`) and does not stop the others; running the batch again
    tries it again.
    """
    make_folder(root)
    unique = {task.name: task for task in tasks}
    pending = [task for task in unique.values() if not finished(task, root)]
    for task in pending:
        with suppress(FileNotFoundError):
            (root / task.name / ERROR).unlink()
    with _watched(list(unique.values()), root, progress):
        while pending:
            before = len(pending)
            _survives(engine, pending, root)
            pending = [task for task in pending if not _ended(task, root)]
            if len(pending) == before:  # some task takes its worker and the others along: find it out one by one
                for task in pending:
                    survived = _survives(engine, [task], root)
                    if not _ended(task, root):
                        died = "its worker process died each time; is there enough memory?"
                        _record(root / task.name, Failure("it ended without a result" if survived else died))
                break
    failures = {name: failure(task, root) for name, task in unique.items()}
    return {name: problem for name, problem in failures.items() if problem is not None}


def _survives(engine: Engine, tasks: Sequence[Task], root: Path) -> bool:
    """Run the tasks; whether all workers lived to the end."""
    try:
        engine.run(tasks, root)
    except (BrokenProcessPool, *_ray_errors()):
        return False
    return True


def _perform_elsewhere(plugins: LoadedPlugins, task: Task, folder: Path, threads: int) -> None:
    """In a worker process, into which the plug-ins came before the task."""
    perform(task, folder, threads)


def perform(task: Task, folder: Path, threads: int | None) -> None:
    """Run a task in this process, unless another one just has."""
    if threads is not None:
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


def _record(folder: Path, problem: Failure, trace: str = "") -> None:
    write_json(folder / ERROR, {"error": problem.message, "kind": problem.kind, "traceback": trace})


@contextmanager
def _watched(tasks: Sequence[Task], root: Path, progress: OnProgress | None) -> Iterator[None]:
    """Report how many tasks are finished while the batch runs, by looking at their folders."""
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
    """What Ray raises when a worker dies; nothing if Ray was never imported."""
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
            hint = "is it running, and does it ask for a token (RAY_AUTH_MODE=token)?"
            raise ConfigError(f"no Ray cluster at {engine.address}: {reason}; {hint}") from error
    register_ray()
    cpus = int(ray.cluster_resources().get("CPU", 1))
    jobs = min(engine.jobs or cpus, len(tasks))
    # Workers may be on other machines: a small actor beside this process takes in their files.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    inbox = ray.remote(num_cpus=0, scheduling_strategy=here)(_Inbox).remote(str(root.resolve()))
    datasets = {id(task.dataset): task.dataset for task in tasks}
    shipped = {key: ray.put(dataset) for key, dataset in datasets.items()}  # once, not per task
    light = [(dataclasses.replace(task, dataset=None), shipped[id(task.dataset)]) for task in tasks]  # type: ignore[type-var]
    with joblib.parallel_config("ray", n_jobs=jobs):
        work = joblib.delayed(_perform_on_ray)
        joblib.Parallel(batch_size=1)(work(LoadedPlugins(), task, ref, inbox) for task, ref in light)


def _reach(address: str | None) -> None:
    """Raise at once if nobody listens there; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


class _Inbox:
    """Writes what workers send into the folders of their tasks, the marker last."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def deliver(self, name: str, files: dict[str, bytes]) -> None:
        for file, content in files.items():
            with replacing(self.root / name / file) as temporary:
                temporary.write_bytes(content)


def _perform_on_ray(plugins: LoadedPlugins, task: Any, dataset: Any, inbox: Any) -> None:
    """Run a task in a Ray worker, into which the plug-ins came before it, and send its files home."""
    import ray

    complete = dataclasses.replace(task, dataset=ray.get(dataset))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "task"
        perform(complete, folder, 1)
        order = sorted(folder.iterdir(), key=lambda path: path.name == complete.marker)
        files = {path.name: path.read_bytes() for path in order if path.is_file()}
    ray.get(inbox.deliver.remote(complete.name, files))
