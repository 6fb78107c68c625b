"""What `torchrun` tells the processes that it starts. Never imports PyTorch."""

from __future__ import annotations

import os
from dataclasses import dataclass


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
