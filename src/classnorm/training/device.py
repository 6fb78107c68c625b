"""Devices for tensors, and products in 16 bits on those that have them.

CUDA and MPS do. A CPU may lack the instructions, and die of them, or be slower than in 32 bits: a child process finds
out, once per process.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from classnorm.errors import ConfigError

if TYPE_CHECKING:
    import torch

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "float16", "bfloat16", "auto"]

_AUTO: tuple[Precision, ...] = ("bfloat16", "float16")  # bfloat16 first: it has the range of float32
_FASTER = 1.1  # times as fast as float32, to be worth it
_TIMEOUT = 120  # seconds
_PROBE = """
import sys, time, torch
rows, weights = torch.randn(128, 512), torch.randn(256, 512, requires_grad=True)
def seconds(enabled):
    with torch.autocast("cpu", getattr(torch, sys.argv[1]), enabled=enabled):
        started = time.perf_counter()
        loss = torch.nn.functional.linear(rows, weights).float().square().mean()
    loss.backward()
    assert loss.isfinite()
    return time.perf_counter() - started
pairs = [(seconds(False), seconds(True)) for _ in range(6)][1:]
full, half = (min(times) for times in zip(*pairs))
print(full / half)
"""


def pick_device(device: Device = "auto") -> torch.device:
    """The torch device; `auto` picks CUDA if available, then MPS, then the CPU."""
    import torch

    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(name for name, usable in available.items() if usable))
    if not available.get(device, False):
        raise ConfigError(f'device {device!r} is not available on this machine; use `device="auto"`')
    return torch.device(device)


class Verdict(NamedTuple):
    """What the probe saw."""

    works: bool
    speed: float
    """Relative to float32."""
    text: str


def pick_dtype(precision: Precision, device: torch.device) -> torch.dtype | None:
    """The type of products on a device; None for float32, without autocast.

    Raises:
        ConfigError: if the type is asked for by name, but the device has no use for it.
    """
    import torch

    if precision == "float32":
        return None
    choices = _AUTO if precision == "auto" else (precision,)
    verdicts = {name: _verdict(name, device.type) for name in choices}
    for name, verdict in verdicts.items():
        if verdict.works and verdict.speed >= _FASTER:
            dtype: torch.dtype = getattr(torch, name)
            return dtype
    if precision == "auto":
        return None
    saw = verdicts[precision].text
    raise ConfigError(f'precision {precision} is of no use on this {device.type}: {saw}; use `precision="float32"`')


def precision_notice(precision: Precision, device: torch.device) -> str | None:
    """What `auto` has come to, if that is float32; an error as in `pick_dtype`."""
    if pick_dtype(precision, device) is not None or precision != "auto":
        return None
    reasons = "; ".join(f"{name}: {_verdict(name, device.type).text}" for name in _AUTO)
    return f"precision auto is float32 on this {device.type} ({reasons})"


def autocast(dtype: torch.dtype | None, device: torch.device) -> torch.autocast:
    """The context in which products have this type; nothing changes if it is None."""
    import torch

    return torch.autocast(device.type, dtype, enabled=dtype is not None)


@cache
def _verdict(name: Precision, device: str) -> Verdict:
    import torch

    if device == "cpu":
        return _probe(name)
    if device == "cuda" and name == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return Verdict(False, 0.0, "it has no such instructions")
    try:
        with torch.autocast(device, getattr(torch, name)):
            works = bool((torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).isfinite().all())
    except (RuntimeError, TypeError) as error:
        return Verdict(False, 0.0, str(error).splitlines()[0])
    return Verdict(works, 2.0, "products are not finite")


def _probe(name: Precision) -> Verdict:
    """Try products and their gradient in a child process, which an unknown instruction ends."""
    command = [sys.executable, "-c", _PROBE, name]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Verdict(False, 0.0, f"the probe failed ({type(error).__name__})")
    if child.returncode < 0:
        return Verdict(False, 0.0, f"the probe died of {signal.Signals(-child.returncode).name}")
    if child.returncode:
        return Verdict(False, 0.0, (child.stderr.strip().splitlines() or ["the probe failed"])[-1])
    speed = float(child.stdout)
    return Verdict(True, speed, f"products run at {speed:.2g} times the speed of float32")
