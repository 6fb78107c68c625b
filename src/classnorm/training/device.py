"""Devices for tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from classnorm.errors import ConfigError

if TYPE_CHECKING:
    import torch

Device = Literal["auto", "cpu", "cuda", "mps"]


def pick_device(device: Device = "auto") -> torch.device:
    """The torch device; `auto` picks CUDA if available, then MPS, then the CPU."""
    import torch

    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(name for name, usable in available.items() if usable))
    if not available.get(device, False):
        raise ConfigError(f'device {device!r} is not available on this machine; use `device="auto"`')
    return torch.device(device)
