"""Claims of the paper about two models."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.reproduce.variants import Row

__all__ = ["Claim"]


@dataclass(frozen=True)
class Claim:
    """One model has the higher H."""

    text: str
    better: Row
    worse: Row
    margin: float = 1.0
    """Points of H that the difference must reach to hold."""
