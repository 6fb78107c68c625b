"""What users are told, in their words: settings as flags, and errors of the parser, which prints boxes, as one line."""

from __future__ import annotations

import io
import itertools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from classnorm.errors import ConfigError

_SETTING = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]+))?`")
_QUOTES = "\"'"
_BAD_VALUE = re.compile(r"Error parsing (\S+): .*?(?:from \[(.*)\]|: ('.*'))\.?$")


def as_flags(message: str) -> str:
    """Replace settings in backticks by their flags; other text in backticks stays.

    >>> as_flags('use `features="vit"` or `final_relu=False`; lower `batch_size`')
    'use --features vit or --no-final-relu; lower --batch-size'
    >>> as_flags("train one with `classnorm train`")
    'train one with `classnorm train`'
    """
    return _SETTING.sub(_flag, message)


def _flag(match: re.Match[str]) -> str:
    name, value = match[1].replace("_", "-"), match[2]
    if value == "False":
        return f"--no-{name}"
    if value in (None, "True"):
        return f"--{name}"
    return f"--{name} {value if ' ' in value else value.strip(_QUOTES)}"


@contextmanager
def one_line_errors(program: str) -> Iterator[None]:
    """Raise a `ConfigError` where the parser prints a box on stderr and exits with code 2."""
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            yield
    except SystemExit as end:
        if end.code != 2 or not printed.getvalue():
            raise
        raise ConfigError(f"{_summary(printed.getvalue())}; see {program} --help") from None
    sys.stderr.write(printed.getvalue())


def _is_rule(line: str) -> bool:
    return bool(line) and not line.strip("─- ")


def _summary(box: str) -> str:
    """What is wrong, and which options are meant.

    >>> print(_summary('''
    ... ╭─ Unrecognized options ───────────────────╮
    ... │ Unrecognized options: --epoch, 3         │
    ... │ ──────────────────────────────────────── │
    ... │ Perhaps you meant:                       │
    ... │     --epochs INT                         │
    ... │         Passes over the training rows.   │
    ... │ ──────────────────────────────────────── │
    ... │ For full helptext, see classnorm --help  │
    ... ╰──────────────────────────────────────────╯'''))
    unrecognized options: --epoch, 3; perhaps you meant --epochs
    """
    lines = [line[2:].rstrip(" │") for line in box.strip("\n").splitlines() if not line.startswith(("╭", "╰"))]
    sections = [list(group) for is_rule, group in itertools.groupby(lines, _is_rule) if not is_rule]
    sections = sections if "╭" in box else sections[1:]  # a title without a box
    if len(sections) < 2:  # another version's layout
        return " ".join(box.split())
    options = [section[1].strip() for section in sections[1:-1] if len(section) > 1]
    said = [line.strip() for line in itertools.takewhile(bool, sections[0]) if not line.startswith(" " * 8)]
    message = " ".join(said).removesuffix(".").removesuffix(". Expected 1 values")
    message = re.sub("^Missing from .*?:", "Missing:", message)
    if (value := _BAD_VALUE.match(message)) and options:
        about = " ".join(line.strip() for line in sections[1][2:]).removesuffix(".")
        return f"{value[1]} cannot be {value[2] or value[3]}; {options[0]}: {about}"
    hint = f"; perhaps you meant {', '.join(option.split()[0] for option in options)}" if options else ""
    return message[0].lower() + message[1:].replace(", 'None'", "").replace("'None', ", "") + hint
