"""The parallel engine: runs many tasks, each in its own folder, on local processes or a Ray cluster.

A task is finished when its folder contains its marker file, which is written last. There is no other state: running a
batch again runs the unfinished tasks, a killed worker loses only its current task, and two batches on the same folders
wait for each other task by task.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import shutil
import signal
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NotRequired, Protocol, TypedDict, TypeVar
from weakref import WeakKeyDictionary

import joblib
import numpy as np
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.backend import fork_exec, resource_tracker
from joblib.externals.loky.process_executor import BrokenProcessPool

from classnorm.data import ZeroShotDataset
from classnorm.errors import ClassNormError, ConfigError, DivergedError
from classnorm.io.arrays import read_npy, write_npy
from classnorm.io.documents import read_json
from classnorm.io.files import locked_folder, make_folder, replacing, write_json
from classnorm.progress import Display, Progress, shown_on, watcher
from classnorm.registry import LoadedPlugins
from classnorm.results.run_folder import is_finished
from classnorm.runs.cluster import Cluster

ERROR = "error.json"
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
_DIED = "its worker process died each time; is there enough memory?"


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

    def run(self, folder: Path) -> object: ...


class ErrorDocument(TypedDict):
    """`error.json`."""

    error: str
    kind: NotRequired[str]


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
    gpus: float = 0.0
    """GPUs of a task on Ray; a fraction shares one, 0 computes on the CPU."""

    def __post_init__(self) -> None:
        if self.backend == "local" and self.address is not None:
            raise ConfigError('`address` names a Ray cluster; add `backend="ray"` to use it')
        if self.jobs < 0:
            raise ConfigError(f"`jobs` is {self.jobs}; it must be at least 1, or 0 for one per core")

    def run(self, tasks: Sequence[Task], root: Path) -> bool:
        """Run the tasks in folders below `root`. False if a worker died, which ends it early."""
        if self.backend == "ray":
            self._run_on_ray(tasks, root)
            return True
        cores = os.cpu_count() or 1
        jobs = self.jobs or cores
        if jobs == 1:
            for task in tasks:
                perform(LoadedPlugins(), task, root / task.name, None)
            return True
        # As many processes as cores, with one thread each, measured faster than fewer processes with more threads. The
        # last tasks of a batch get no more threads, since their number can change the last digits of a result.
        threads = max(1, cores // jobs)
        workers = max(2, min(jobs, cores, len(tasks)))  # two even for one task: joblib would run it in this process
        started = {"initializer": _serve, "initargs": (os.getpid(),)}
        with joblib.parallel_config("loky", n_jobs=workers, inner_max_num_threads=threads, **started):
            work = joblib.delayed(perform)
            mapped = (dataclasses.replace(task, dataset=_mapped(task.dataset)) for task in tasks)  # type: ignore[type-var]
            try:
                with _quiet_starts():
                    joblib.Parallel(batch_size=1)(
                        work(LoadedPlugins(), light, root / task.name, threads)
                        for task, light in zip(tasks, mapped, strict=True)
                    )
            except BrokenProcessPool:
                return False
            except KeyboardInterrupt:
                get_reusable_executor().shutdown(wait=False, kill_workers=True)  # what they do is done again
                raise
        return True

    def _run_on_ray(self, tasks: Sequence[Task], root: Path) -> None:
        """Run the tasks on workers, and write what they send back."""
        light = ((task.dataset, dataclasses.replace(task, dataset=None)) for task in tasks)  # type: ignore[type-var]
        for number, files in self.cluster.results(_files, light):
            folder = root / tasks[number].name
            if files is None:
                _record(folder, Failure(_DIED))
                continue
            for name, content in files.items():
                with replacing(folder / name) as temporary:
                    temporary.write_bytes(content)

    def together(self, function: Callable[[Item], Outcome], items: Iterable[Item]) -> list[Outcome]:
        """Call a function that runs tasks for each item: one after another, or on Ray all at once to fill the cluster.

        With `jobs`, which limits the tasks of one call, they run one after another too. Raises the first error, after
        all calls have ended.
        """
        if self.backend == "local" or self.jobs:
            return [function(item) for item in items]
        self.cluster.connect()
        calls: list[Future[Outcome]] = []
        for item in items:
            calls.append(Future())
            # No pool: its threads would not let the process end after an interruption.
            settle = partial(copy_context().run, _settle, calls[-1], function, item)
            threading.Thread(target=settle, daemon=True).start()
        wait(calls)
        return [call.result() for call in calls]

    @property
    def cluster(self) -> Cluster:
        return Cluster(address=self.address, jobs=self.jobs, gpus=self.gpus)


def _settle(call: Future[Outcome], function: Callable[[Item], Outcome], item: Item) -> None:
    try:
        call.set_result(function(item))
    except BaseException as error:
        call.set_exception(error)


_MAPPED: WeakKeyDictionary[ZeroShotDataset, ZeroShotDataset] = WeakKeyDictionary()
"""Dataset → the same in files, which are deleted with the dataset."""


def _mapped(dataset: ZeroShotDataset) -> ZeroShotDataset:
    """The dataset with its rows in files, which worker processes map instead of receiving them with each batch."""
    if not isinstance(dataset.features, np.ndarray) or isinstance(dataset.features, np.memmap):
        return dataset  # its features are in a file already
    if dataset not in _MAPPED:
        folder = tempfile.mkdtemp(prefix="classnorm-")
        resource_tracker.register(folder, "folder")  # deletes it even if this process is killed
        weakref.finalize(dataset, _delete, folder)
        mapped = copy.copy(dataset)  # with what it has computed, like its checksum
        for name in ("features", "images"):
            if (array := getattr(dataset, name)) is not None:
                file = Path(folder) / f"{name}.npy"
                write_npy(file, array)
                object.__setattr__(mapped, name, read_npy(file))
        _MAPPED[dataset] = mapped
    return _MAPPED[dataset]


def _delete(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    resource_tracker.unregister(folder, "folder")


def failure(task: Task, root: Path) -> Failure | None:
    """The recorded error of a task; None if it did not fail."""
    path = root / task.name / ERROR
    if not path.is_file():
        return None
    document = read_json(path, ErrorDocument, "delete it")
    return Failure(document["error"], document.get("kind", ""))


def run_tasks(
    tasks: Sequence[Task],
    root: Path,
    engine: Engine,
    *,
    repeat_diverged: bool = True,
) -> dict[str, Failure]:
    """Run the unfinished tasks; return the failures by name.

    An error is recorded in the folder of its task (`error.json`) and does not stop other tasks. Running the batch again
    retries it, unless it is a divergence and not to be repeated.
    """
    make_folder(root)
    unique = {task.name: task for task in tasks}
    kept = {} if repeat_diverged else unique
    given_up = {name: error for name, task in kept.items() if (error := failure(task, root)) and error.diverged}
    tasks = [task for name, task in unique.items() if name not in given_up]
    pending = [task for task in tasks if not is_finished(root / task.name, task.marker)]
    for task in pending:
        (root / task.name / ERROR).unlink(missing_ok=True)
    with _watched(tasks, root):
        while pending:
            before = len(pending)
            engine.run(pending, root)
            pending = [task for task in pending if not _ended(task, root)]
            if len(pending) == before:  # some task kills its worker: run them one by one to find it
                for task in pending:
                    survived = engine.run([task], root)
                    if not _ended(task, root):
                        _record(root / task.name, Failure("it ended without a result" if survived else _DIED))
                break
    return given_up | {task.name: error for task in tasks if (error := failure(task, root))}


def _ended(task: Task, root: Path) -> bool:
    return is_finished(root / task.name, task.marker) or (root / task.name / ERROR).is_file()


@contextmanager
def _quiet_starts() -> Iterator[None]:
    """Start workers with Ctrl-C blocked, which they inherit: while they load, it would print their tracebacks."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    start = fork_exec.fork_exec

    def start_blocked(*arguments: Any, **settings: Any) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return start(*arguments, **settings)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    fork_exec.fork_exec = start_blocked
    try:
        yield
    finally:
        fork_exec.fork_exec = start


def _serve(parent: int) -> None:
    """End this worker when its parent ends, however it does, and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def perform(plugins: LoadedPlugins, task: Task, folder: Path, threads: int | None) -> None:
    """Run a task in this process, unless another process has finished it.

    Args:
        plugins: those of the process that sends the task. They come before it: where they are unpickled, they are
            loaded, and the task may need them.
    """
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    with locked_folder(folder):
        if is_finished(folder, task.marker):
            return
        try:
            with shown_on(Display()):  # only the number of tasks is shown
                task.run(folder)
        except Exception as error:
            kind = type(error).__name__
            message = str(error) if isinstance(error, ClassNormError) else f"{kind}: {error}"
            _record(folder, Failure(message, kind), traceback.format_exc())


def _record(folder: Path, failed: Failure, trace: str = "") -> None:
    write_json(folder / ERROR, {"error": failed.message, "kind": failed.kind, "traceback": trace})


@contextmanager
def _watched(tasks: Sequence[Task], root: Path) -> Iterator[None]:
    """Report the number of ended tasks while the batch runs, from their folders."""
    if (on_progress := watcher()) is None:
        yield
        return
    stop = threading.Event()

    def count() -> None:
        on_progress(Progress(sum(_ended(task, root) for task in tasks), len(tasks)))

    def watch() -> None:
        while not stop.wait(0.5):
            count()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        count()


def _files(dataset: ZeroShotDataset, task: Any) -> dict[str, bytes]:
    """Run a task in a worker on Ray; return its files, the marker last."""
    complete = dataclasses.replace(task, dataset=dataset)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "task"
        perform(LoadedPlugins(), complete, folder, 1)
        order = sorted(folder.iterdir(), key=lambda path: path.name == complete.marker)
        return {path.name: path.read_bytes() for path in order if path.is_file() and not path.name.startswith(".")}
