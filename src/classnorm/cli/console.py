"""What commands share in talking to people: tables on stdout, progress and notices on stderr, JSON on request."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from classnorm.cli.flags import as_flags
from classnorm.progress import Announce, OnProgress, Progress

__all__ = ["notice", "print_json", "print_table", "progress_display", "stage_progress"]

_SECONDS_BETWEEN_LINES = 5.0


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
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
        )
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            yield partial(_bar, bars)
    else:
        yield _lines


@contextmanager
def stage_progress(stage: str, quiet: bool) -> Iterator[OnProgress | None]:
    """The progress callback of work that has a single stage."""
    with progress_display(quiet) as announce:
        yield announce(stage)


def _bar(bars: Bars, stage: str) -> OnProgress:
    task = bars.add_task(stage, total=None, note="")

    def update(step: Progress) -> None:
        bars.update(task, total=step.total, completed=step.done, note=step.note)
        if step.done == step.total:
            bars.remove_task(task)

    return update


def _lines(stage: str) -> OnProgress:
    """A line when the stage ends, and one every few seconds until then."""
    first: Progress | None = None
    started = last = time.monotonic()
    ended = False

    def update(step: Progress) -> None:
        nonlocal first, started, last, ended
        now = time.monotonic()
        if first is None:
            first, started = step, now
        is_last = step.done == step.total
        if ended or not (is_last or now - last > _SECONDS_BETWEEN_LINES):
            return
        last, ended = now, is_last
        parts = [f"{step.done}/{step.total}", *([step.note] if step.note else [])]
        if first.done < step.done < step.total:
            left = (now - started) / (step.done - first.done) * (step.total - step.done)
            parts.append(f"about {left:.0f} s left")
        print(f"{stage}: {', '.join(parts)}", file=sys.stderr, flush=True)

    return update
