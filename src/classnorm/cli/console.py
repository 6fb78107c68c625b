"""What commands share in talking to people: tables on stdout, progress and notices on stderr, JSON on request."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from classnorm.cli.flags import as_flags

if TYPE_CHECKING:  # PyTorch is slow to import, and not every command needs it
    from classnorm.continual import StreamProgress, TaskEpoch
    from classnorm.training import Epoch, Progress

__all__ = [
    "batch_progress",
    "image_progress",
    "notice",
    "print_json",
    "print_table",
    "progress_display",
    "stream_progress",
]

_SECONDS_BETWEEN_LINES = 5.0

Announce = Callable[[str], "Progress | None"]


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(renderable: Any) -> None:
    """A rich table on stdout; wide enough not to be cut where stdout is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    console.print(renderable)


def notice(text: str, quiet: bool = False) -> None:
    """A line on stderr, with settings written as flags."""
    if not quiet:
        print(f"classnorm: {as_flags(text)}", file=sys.stderr)


@contextmanager
def progress_display(quiet: bool) -> Iterator[Announce]:
    """Gives a function that starts a stage and returns its progress callback: a bar, or plain lines off a terminal."""
    if quiet:
        yield lambda stage: None
    elif sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(compact=True),
        )
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            yield lambda stage: _bar(bars, stage)
    else:
        yield _lines


@contextmanager
def batch_progress(what: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Gives a callback (done, of) for many runs: a bar with time left, or a line now and then off a terminal."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(what, total=None)
            yield lambda done, of: bars.update(task, completed=done, total=of)
    else:
        yield _batch_lines(what)


@contextmanager
def image_progress(quiet: bool) -> Iterator[Callable[[int, int, int], None] | None]:
    """A bar with images/s and time left, or a line now and then off a terminal."""
    if quiet:
        yield None
        return
    started = last = time.monotonic()

    def rate(done: int, of: int, before: int) -> str:
        speed = (done - before) / (time.monotonic() - started)
        return f"{speed:.1f} images/s, about {(of - done) / speed:.0f} s left"

    if sys.stderr.isatty():
        columns = (TextColumn("extract"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task("", total=None)
            yield lambda done, of, before: bars.update(
                task, completed=done, total=of, description=rate(done, of, before)
            )
        return

    def line(done: int, of: int, before: int) -> None:
        nonlocal last
        if done == of or time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"extract: {done}/{of}, {rate(done, of, before)}", file=sys.stderr, flush=True)

    yield line


@contextmanager
def stream_progress(what: str, quiet: bool) -> Iterator[StreamProgress | None]:
    """Gives a callback for a stream: a bar over all tasks, or a line per task off a terminal."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[where]}"),
            TimeRemainingColumn(compact=True),
        )
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(what, total=None, where="")

            def update(step: TaskEpoch) -> None:
                done = (step.task - 1) * step.epochs + step.epoch
                where = f"task {step.task}/{step.tasks}, epoch {step.epoch}/{step.epochs}, loss {step.loss:.3f}"
                bars.update(task, total=step.tasks * step.epochs, completed=done, where=where)

            yield update
    else:

        def line(step: TaskEpoch) -> None:
            if step.epoch == step.epochs:
                print(f"{what}: task {step.task}/{step.tasks}, loss {step.loss:.3f}", file=sys.stderr, flush=True)

        yield line


def _batch_lines(what: str) -> Callable[[int, int], None]:
    started = last = time.monotonic()
    first: int | None = None
    shown = -1

    def update(done: int, of: int) -> None:
        nonlocal first, last, shown
        now = time.monotonic()
        first = done if first is None else first
        if done == shown or (done < of and now - last < _SECONDS_BETWEEN_LINES):
            return
        last, shown = now, done
        left = ""
        if first < done < of:
            left = f", about {(now - started) / (done - first) * (of - done):.0f} s left"
        print(f"{what}: {done}/{of}{left}", file=sys.stderr, flush=True)

    return update


def _bar(bars: Bars, stage: str) -> Progress:
    task = bars.add_task(stage, total=None, loss="")

    def update(epoch: Epoch) -> None:
        bars.update(task, total=epoch.total, completed=epoch.number, loss=f"loss {epoch.loss:.3f}")
        if epoch.number == epoch.total:
            bars.remove_task(task)

    return update


def _lines(stage: str) -> Progress:
    """A line when the stage ends, and one every few seconds until then."""
    last = time.monotonic()

    def update(epoch: Epoch) -> None:
        nonlocal last
        if epoch.number == epoch.total or time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{stage}: epoch {epoch.number}/{epoch.total}, loss {epoch.loss:.3f}", file=sys.stderr, flush=True)

    return update
