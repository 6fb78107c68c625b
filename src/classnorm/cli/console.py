"""Terminal output: tables and JSON on stdout, progress and notices on stderr."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from classnorm.cli.messages import as_flags
from classnorm.io.escapes import printable
from classnorm.progress import Display, OnProgress, Progress

_SECONDS_BETWEEN_LINES = 5.0


class _Guarded:
    """A stream that shows control characters instead of sending them: names in files may hold any."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _unguarded(stream: TextIO) -> TextIO:
    """The stream itself, for output that has its own control characters."""
    return stream.stream if isinstance(stream, _Guarded) else stream


@contextmanager
def guarded_output() -> Iterator[None]:
    """Print no control characters but those of tables and bars, and escapes for letters that the terminal lacks."""
    streams = [_unguarded(sys.stdout), _unguarded(sys.stderr)]
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    output, errors = (cast(TextIO, _Guarded(stream)) for stream in streams)
    with redirect_stdout(output), redirect_stderr(errors):
        yield


def print_json(document: Any) -> None:
    """Print a JSON document on stdout."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    text = json.dumps(document, indent=2, ensure_ascii=not is_unicode, allow_nan=False)
    print(re.sub(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", text))


def print_table(renderable: Any) -> None:
    """Print a rich table on stdout; if that is not a terminal, 140 characters wide."""
    stream = sys.stdout
    Console(file=_unguarded(stream), width=None if stream.isatty() else 140).print(renderable)


def counted(n: int, noun: str) -> str:
    """
    >>> counted(1, "image"), counted(0, "seen class")
    ('1 image', '0 seen classes')
    """
    return f"{n} {noun}{'' if n == 1 else 'es' if noun.endswith('s') else 's'}"


def display(*, quiet: bool) -> Display:
    """Stages and notices on stderr: bars on a terminal, else lines; nothing if quiet."""
    if quiet:
        return Display()
    return _Bars() if sys.stderr.isatty() else _Lines()


class _Lines(Display):
    def stage(self, name: str) -> AbstractContextManager[OnProgress | None]:
        return nullcontext(_lines(name))

    def notice(self, text: str) -> None:
        """Print a line, with settings written as flags."""
        print(f"classnorm: {as_flags(text)}", file=sys.stderr)


class _Bars(_Lines):
    """Bars below each other, for as long as any stage is open."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(compact=True),
        )
        self.bars = Bars(*columns, console=Console(file=_unguarded(sys.stderr)), transient=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[OnProgress]:
        task = self.bars.add_task(printable(name), total=None, note="")
        self.bars.start()
        try:
            yield lambda step: self.bars.update(task, total=step.total, completed=step.done, note=step.note)
        finally:
            self.bars.remove_task(task)
            if not self.bars.tasks:
                self.bars.stop()


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
