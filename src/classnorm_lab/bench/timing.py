"""Time, memory, and the machine on which they are measured."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from classnorm.runs.job import versions

_BUSY_SHARE = 0.85  # of the processor time that products should get
_BUSY_LOAD = 0.75  # per core, before anything is measured


def seconds_of(action: Callable[[], object]) -> float:
    """Wall time of an action."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Let PyTorch use `n` threads inside the block; None leaves their number alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """A list to which the peak resident memory of the block in GB is added; it stays empty where there is no Linux."""
    peaks: list[float] = []
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # restarts the peak
    except OSError:
        yield peaks
        return
    yield peaks
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    peaks += [int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM")]


def machine(device: torch.device) -> dict[str, Any]:
    """What decides the speed of a run, apart from the code."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "system": platform.system(),
        "versions": versions(),
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def load_average() -> float | None:
    """Of the last minute; None where the system has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def processor_share(seconds: float = 0.5) -> float:
    """Processor time over wall time × threads of products on all threads: about 1 on an idle machine."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    result = left @ right
    wall, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        torch.mm(left, right, out=result)
    busy = min(torch.get_num_threads(), os.cpu_count() or 1)
    return (time.process_time() - cpu) / (time.perf_counter() - wall) / busy


def busy_warning(load: float | None, share: float, cores: int) -> str | None:
    """A warning if other programs use the machine: by its load before the start, and by its `processor_share`.

    >>> busy_warning(0.1, 0.99, 4)
    >>> busy_warning(3.5, 0.99, 4)
    'the machine is busy (load average 3.5 on 4 cores before the start): trust ratios only'
    """
    reasons = []
    if load is not None and load > _BUSY_LOAD * cores:
        reasons.append(f"load average {load:.1f} on {cores} cores before the start")
    if share < _BUSY_SHARE:
        reasons.append(f"products get {share:.0%} of the processor time they ask for")
    return f"the machine is busy ({', '.join(reasons)}): trust ratios only" if reasons else None
