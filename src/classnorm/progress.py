"""How far long work has come: what workers report and displays show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Announce", "OnProgress", "Progress"]


@dataclass(frozen=True)
class Progress:
    """So many units of work are done."""

    done: int
    total: int
    note: str = ""
    """What else is worth showing, like the loss."""


OnProgress = Callable[[Progress], None]
Announce = Callable[[str], OnProgress | None]
"""Starts a stage with this name and returns the callback for its progress, if anybody is watching."""
