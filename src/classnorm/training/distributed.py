"""Several processes that train one model, started by `torchrun`.

Every process holds the model and does the same, except that it computes only its part of the rows. Sums over all
processes make the results the same everywhere, and the same as those of one process up to rounding. Only the first
process writes files.

PyTorch is imported when it is needed: commands that do not train load this module as well.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from classnorm.errors import ConfigError, TrainingError
from classnorm.training.device import Device, pick_device

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch._C._distributed_c10d import Store

_TIMEOUT = timedelta(minutes=10)  # processes that do the same work at the same time do not wait longer for each other
_POLL = 0.05  # seconds
_LOST = (
    "the training stopped, because one of its processes ended or did not answer (torchrun says which); "
    "to continue, run the same command with `resume`"
)
Number = TypeVar("Number", bound=np.generic)
_store: Store | None = None


@dataclass(frozen=True)
class Launch:
    """The place of this process among those that `torchrun` started."""

    rank: int = 0
    local_rank: int = 0
    """Rank on this machine."""
    count: int = 1


def launch() -> Launch:
    """Read the environment. A process that `torchrun` did not start is on its own."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # other launchers set RANK and WORLD_SIZE as well
        return Launch()
    return Launch(*(int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))


class Processes:
    """The processes that train together.

    Args:
        rank: number of this process.
        count: number of processes.
        store: what they tell each other; none for a single process.
    """

    def __init__(self, rank: int = 0, count: int = 1, store: Store | None = None) -> None:
        self.rank, self.count, self._store = rank, count, store
        self._questions = itertools.count()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def part(self, n: int) -> slice:
        """This process's part of n rows; may be empty."""
        return slice(self.rank * n // self.count, (self.rank + 1) * n // self.count)

    def batch_part(self, n: int) -> tuple[slice, float]:
        """This process's part of a batch of n rows, and its share of the batch.

        If it has no rows, it is the first row with share 0, so that every process takes the same steps.
        """
        part = self.part(n)
        return (part, (part.stop - part.start) / n) if part.stop > part.start else (slice(0, 1), 0.0)

    def add_up(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over all processes."""
        if self.count > 1:
            import torch.distributed as dist

            with _connected():
                for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                    work.wait()

    def add_up_gradients(self, parameters: Iterable[nn.Parameter], share: float) -> None:
        """Replace the gradients of the mean loss over a part of the batch by those of the mean over the whole batch."""
        if self.count > 1:
            import torch

            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._foreach_mul_(gradients, share)
            self.add_up(*gradients)

    def concatenated(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """The arrays [n, …] of all processes, one after the other; n may differ."""
        if self.count == 1:
            return values
        import torch

        lengths = torch.zeros(self.count, dtype=torch.int64)
        lengths[self.rank] = len(values)
        self.add_up(lengths)
        start = int(lengths[: self.rank].sum())
        whole = np.zeros((int(lengths.sum()), *values.shape[1:]), dtype=values.dtype)
        whole[start : start + len(values)] = values
        self.add_up(torch.from_numpy(whole.view(np.uint8) if whole.dtype == bool else whole))
        return whole

    def from_first(self, value: int = 0) -> int:
        """The value of the first process, for which the others wait, however long it takes."""
        if self._store is None:
            return value
        key = f"from first {next(self._questions)}"
        with _connected():
            if self.is_first:
                self._store.set(key, str(int(value)))
                return value
            while not self._store.check([key]):  # `wait` would block signals
                time.sleep(_POLL)
            return int(self._store.get(key))

    @contextmanager
    def first_goes_ahead(self) -> Iterator[None]:
        """The others enter the block when the first process has left it, to find what it has cached."""
        if not self.is_first:
            self.from_first()
        yield
        if self.is_first:
            self.from_first()


SINGLE_PROCESS = Processes()


@contextmanager
def process_group(device: Device = "auto") -> Iterator[tuple[Processes, Device]]:
    """The processes that `torchrun` started, which wait for each other here, and the device of this one."""
    global _store
    place = launch()
    if place.count == 1:
        yield SINGLE_PROCESS, device
        return
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    device = _own_device(device, place.local_rank)
    previous = signal.signal(signal.SIGTERM, _terminated)
    with _connected():
        store, rank, count = next(rendezvous("env://", timeout=_TIMEOUT))
        backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=_TIMEOUT, store=store, rank=rank, world_size=count)
    _store = store
    try:
        yield Processes(rank, count, store), device
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends anyway, with the message of this error
        raise
    dist.destroy_process_group()  # not after an error: it would wait for processes that are gone
    _store = None
    gc.collect()  # ends the threads of the group now: at the end of the interpreter they may abort the process
    signal.signal(signal.SIGTERM, previous)


def is_first_to_fail() -> bool:
    """Whether no other process has reported an error: the same one, or the one that caused this one."""
    if _store is None:
        return launch().local_rank == 0
    try:
        return int(_store.add("failures", 1)) == 1
    except RuntimeError:  # the store is gone, with the machine that held it
        return True


def _own_device(device: Device, local_rank: int) -> Device:
    import torch

    if device == "mps":
        raise ConfigError('several processes cannot share an MPS device; use `device="cpu"`')
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    pick_device("cuda")
    if local_rank >= torch.cuda.device_count():
        gpus = f"more processes than GPUs, of which there are {torch.cuda.device_count()}"
        raise ConfigError(f'{gpus}; lower the --nproc-per-node of torchrun or use `device="cpu"`')
    torch.cuda.set_device(local_rank)
    return "cuda"


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # all errors of torch.distributed are RuntimeErrors
        raise TrainingError(_LOST) from error


def _terminated(number: int, frame: Any) -> NoReturn:
    """`torchrun` ends all processes when one has failed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise TrainingError(_LOST)
