"""Progress of long-running work: reported by workers, shown by displays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Units of work done, out of a total."""

    done: int
    total: int
    note: str = ""
    """Additional information to show, such as the loss."""


OnProgress = Callable[[Progress], None]
Announce = Callable[[str], OnProgress | None]
"""Start the named stage and return the callback for its progress, or None if progress is not shown."""
