"""Terminal output: tables and JSON on stdout, progress and notices on stderr."""

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
    """Print a JSON document on stdout."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(renderable: Any) -> None:
    """Print a rich table on stdout; if that is not a terminal, 140 characters wide."""
    Console(width=None if sys.stdout.isatty() else 140).print(renderable)


def notice(*texts: str, quiet: bool) -> None:
    """Unless quiet, print a line for each text on stderr, with settings written as flags."""
    for text in texts if not quiet else ():
        print(f"classnorm: {as_flags(text)}", file=sys.stderr)


@contextmanager
def progress_display(quiet: bool) -> Iterator[Announce]:
    """Yield a function that starts a stage and returns its progress callback: a bar, or lines if not on a terminal."""
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
    """Yield the progress callback of a single stage."""
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
    """Print a line every few seconds and one when the stage ends."""
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
