"""Progress and notices of long-running work: reported where the work is done, shown by the display that is set.

>>> class Lines(Display):
...     def stage(self, name):
...         return nullcontext(lambda step: print(f"{name}: {step.done}/{step.total}"))
>>> with shown_on(Lines()), stage("copy"):
...     report(1, 2)
copy: 1/2
>>> report(2, 2)  # nobody watches
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """Units of work done, out of a total."""

    done: int
    total: int
    note: str = ""
    """Additional information to show, such as the loss."""


OnProgress = Callable[[Progress], None]


class Display:
    """Shows nothing; a subclass shows what it overrides."""

    def stage(self, name: str) -> AbstractContextManager[OnProgress | None]:
        """While the context is open, what it yields is called with the progress of the named stage."""
        return nullcontext()

    def notice(self, text: str) -> None:
        """Show a sentence that the user should read, with settings in backticks."""


_display: ContextVar[Display] = ContextVar("display", default=Display())  # noqa: B039  # it has no state
_whole: ContextVar[str] = ContextVar("whole", default="")
_on_progress: ContextVar[OnProgress | None] = ContextVar("on_progress", default=None)


@contextmanager
def shown_on(display: Display) -> Iterator[None]:
    """Within this block, stages and notices are shown on a display; threads that the block starts have none."""
    with _set(_display, display), _set(_on_progress, None), _set(_whole, ""):
        yield


@contextmanager
def stages_of(whole: str) -> Iterator[None]:
    """Within this block, the names of stages begin with the name of the whole: ``seed 0, training``."""
    with _set(_whole, f"{whole}, "):
        yield


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Within this block, what is reported is the progress of the named stage."""
    with _display.get().stage(_whole.get() + name) as on_progress, _set(_on_progress, on_progress):
        yield


@contextmanager
def reported_as(change: Callable[[Progress], Progress]) -> Iterator[None]:
    """Within this block, what is reported is changed first: the progress of a part becomes that of the whole."""
    on_progress = _on_progress.get()
    with _set(_on_progress, on_progress and (lambda step: on_progress(change(step)))):
        yield


def report(done: int, total: int, note: str = "") -> None:
    """Say how far the stage is."""
    if on_progress := _on_progress.get():
        on_progress(Progress(done, total, note))


def watcher() -> OnProgress | None:
    """What is called with the progress of the stage, for a thread that this one starts; None if nobody watches."""
    return _on_progress.get()


def notice(*texts: str) -> None:
    """Show each text to the user."""
    for text in texts:
        _display.get().notice(text)


@contextmanager
def _set(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
