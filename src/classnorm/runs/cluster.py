"""Calls of a function on a Ray cluster.

Results come back to the caller, so the machines need no common disk. An object that many calls share is sent to the
cluster once. A call whose node is lost runs again on another one, and nodes that join late get their share.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from classnorm.errors import ClassNormError, ClusterError, ConfigError
from classnorm.registry import LoadedPlugins
from classnorm.settings import Config, NotNegative, at_least

_RETRIES = 3  # of a call whose worker died
_WAITING = 1000  # calls that Ray knows of at a time: enough for any cluster, and quick to look through
_SECONDS = 1.0  # between two looks at the head
_LOOKS = 4  # without an answer, after which the head counts as dead


@dataclass(frozen=True, kw_only=True)
class Cluster(Config):
    """Ray cluster."""

    address: str | None = None
    """Address of a running Ray cluster; by default a local cluster is started."""
    jobs: Annotated[int, at_least(0)] = 0
    """Calls at a time; 0 is one per CPU of the cluster."""
    gpus: NotNegative = 0.0
    """GPUs of a call on Ray; a fraction shares one."""

    def results(
        self, function: Callable[[Any, Any], Any], calls: Iterable[tuple[Any, Any]]
    ) -> Iterator[tuple[int, Any]]:
        """Call `function(shared, argument)` for each pair; yield the number of the call and its result, as they end.

        Each worker process receives a shared object once, as long as the next call has the same one. The result is None
        if every worker that ran the call died.

        Raises:
            ClusterError: the cluster was lost, or its workers cannot run the function.
        """
        ray = self.connect()
        head = _Head(ray, self.address)
        remote = ray.remote(_call).options(num_cpus=1, num_gpus=self.gpus, max_retries=_RETRIES)
        numbered = enumerate(calls)
        running: dict[Any, int] = {}
        try:
            while True:
                for number, (shared, argument) in islice(numbered, (self.jobs or _WAITING) - len(running)):
                    call = (LoadedPlugins(), function, argument)
                    running[remote.remote(str(Path.cwd()), call, [_sent(ray, shared)])] = number
                if not running:
                    return
                ended, _ = ray.wait(list(running), timeout=_SECONDS)
                head.look()
                for reference in ended:
                    result = _result(ray, reference, head)
                    yield running.pop(reference), result
        except (ray.exceptions.LocalRayletDiedError, ray.exceptions.RaySystemError, ConnectionError) as error:
            raise head.lost() from error
        finally:
            if not head.is_lost:
                for reference in running:
                    ray.cancel(reference, force=True)

    def connect(self) -> Any:
        """Connect to the cluster, unless this process is connected already; return the module `ray`."""
        try:
            import ray
        except ImportError as error:
            raise ConfigError("`backend=\"ray\"` needs Ray; pip install 'classnorm[ray]'") from error
        with _LOCK:
            if not ray.is_initialized():
                self._start(ray)
        if self.gpus and self.gpus > (available := ray.cluster_resources().get("GPU", 0)):
            raise ConfigError(f"`gpus` is {self.gpus:g}, but the Ray cluster has {available:g}; use fewer")
        return ray

    def _start(self, ray: Any) -> None:
        settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        if self.address is None:
            settings["num_cpus"] = min(self.jobs or sys.maxsize, max(2, os.cpu_count() or 1))
        try:
            _reach(self.address)
            with nullcontext() if self.address else _loopback(ray):
                ray.init(address=self.address or "local", **settings)  # without "local" Ray joins any cluster it finds
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            hint = "is it running, and does it need a token (RAY_AUTH_MODE=token)?"
            raise ConfigError(f"no Ray cluster at {self.address}: {reason}; {hint}") from error
        # Ray prints the log of a node that dies on stdout, whatever `log_to_driver` is.
        ray._private.worker.print_to_stdstream = lambda *_, **__: None


class _Head:
    """Watches the head of the cluster, and Ray on this machine.

    Ray itself waits for a dead one for a quarter of a minute or longer, and then ends this process.
    """

    def __init__(self, ray: Any, address: str | None) -> None:
        self.next = 0.0  # time of the next look
        self.is_lost = False
        if address and address.startswith("ray://"):
            self.address, self.watched = address, [address]
            return
        context = ray.get_runtime_context()
        self.address = context.gcs_address
        self.watched = [self.address]
        self.look()  # before Ray asks the head, which it would do for a minute
        here = [node for node in ray.nodes() if node["NodeID"] == context.get_node_id()]
        self.watched += [f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}" for node in here]

    def look(self, *, now: bool = False) -> None:
        """Raise if one of them does not answer several times in a row."""
        if time.monotonic() < self.next and not now:
            return
        for _ in range(_LOOKS):
            try:
                for address in self.watched:
                    _reach(address)
                break
            except OSError:
                time.sleep(_SECONDS)
        else:
            raise self.lost()
        self.next = time.monotonic() + _SECONDS

    def lost(self) -> ClusterError:
        self.is_lost = True
        return ClusterError(
            f"lost the Ray cluster at {self.address}; restart it and run the same command again: it goes on from here"
        )


@contextmanager
def _loopback(ray: Any) -> Iterator[None]:
    """Let a local cluster listen on the loopback address only: who reaches Ray can run code.

    On Linux Ray listens on all addresses unless told, by this variable, that clusters of several machines are off.
    """
    variable, constants = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", ray._private.ray_constants
    before = os.environ.get(variable), constants.ENABLE_RAY_CLUSTER
    os.environ[variable], constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before[1]
        if before[0] is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before[0]


def _reach(address: str | None) -> None:
    """Raise at once if nothing listens at the address; Ray would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


_LOCK = threading.Lock()
_SENT: WeakKeyDictionary[Any, tuple[str, Any]] = WeakKeyDictionary()
"""Shared object → the connection it was sent through, and its reference there."""


def _sent(ray: Any, shared: Any) -> Any:
    """The reference to an object in Ray's store, where it stays as long as it lives here."""
    connection = ray.get_runtime_context().get_job_id()
    with _LOCK:
        known, reference = _SENT.get(shared, ("", None))
        if known != connection:
            try:
                reference = ray.put(shared)
            except ray.exceptions.ObjectStoreFullError as error:
                raise ClusterError(
                    "the data does not fit into Ray's object store; start Ray with a larger one "
                    "(ray start --object-store-memory BYTES)"
                ) from error
            _SENT[shared] = connection, reference
    return reference


def _result(ray: Any, reference: Any, head: _Head) -> Any:
    try:
        return ray.get(reference)
    except (ray.exceptions.LocalRayletDiedError, ray.exceptions.RaySystemError):
        raise
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ClassNormError):
            raise error.cause from None
        reason = str(error).strip().splitlines()[-1]
        raise ClusterError(
            f"a worker of the Ray cluster failed ({reason}); is this version of classnorm installed on every node?"
        ) from error
    except ray.exceptions.RayError:  # its worker or node died, each time
        head.look(now=True)
        return None


_HELD: dict[str, Any] = {}
"""In a worker: the shared object of the last call, by its reference."""


def _call(folder: str, call: tuple[LoadedPlugins, Callable[[Any, Any], Any], Any], references: list[Any]) -> Any:
    """Run a call in a worker. Unpickling the plug-ins, which come first, loads them before the rest."""
    import ray

    with suppress(OSError):
        os.chdir(folder)  # of the caller, so that relative paths mean the same
    _, function, argument = call
    key = references[0].hex()
    if key not in _HELD:
        _HELD.clear()
        _HELD[key] = ray.get(references[0])
    return function(_HELD[key], argument)
