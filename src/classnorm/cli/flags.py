"""Translation of settings in the library's messages into flags."""

from __future__ import annotations

import re

_SETTING = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]+))?`")
_QUOTES = "\"'"


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
