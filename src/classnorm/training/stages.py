"""Where the time of a training step goes: a loop marks its stages, and `stage_seconds` adds up their time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Literal

Stage = Literal["gather", "embedder", "logits", "backward", "optimizer"]

_seconds: ContextVar[dict[Stage, float] | None] = ContextVar("seconds of stages", default=None)


class stage:  # noqa: N801 (used like a function)
    """Marks a stage of a training step. Costs next to nothing unless `stage_seconds` is active."""

    __slots__ = ("name", "started")

    def __init__(self, name: Stage) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        seconds = _seconds.get()
        if seconds is not None:
            seconds[self.name] = seconds.get(self.name, 0.0) + time.perf_counter() - self.started


@contextmanager
def stage_seconds() -> Iterator[dict[Stage, float]]:
    """Collect the seconds of every stage inside the block. An accelerator runs behind: there they mean little.

    >>> with stage_seconds() as seconds:
    ...     with stage("gather"):
    ...         pass
    >>> list(seconds)
    ['gather']
    """
    seconds: dict[Stage, float] = {}
    token = _seconds.set(seconds)
    try:
        yield seconds
    finally:
        _seconds.reset(token)
