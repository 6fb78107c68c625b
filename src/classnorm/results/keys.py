"""Keys of results: what determines a result, so that one that was found before is found again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from classnorm.io.files import digest

VERSIONS = {"calibration": 1, "validation": 1, "scores": 1, "stream scores": 1}
"""Versions of the rules that decide numbers and are in no config: how a calibration is chosen, what is held out for
validation, how test rows and streams are scored. Raise the version of a rule with a change of it that changes numbers,
and results under the old rule are no longer found. `method NAME` and `strategy NAME` are rules too: how they fit. Rules
that are not listed have version 1."""


def key_of(facts: Sequence[Any], *rules: str) -> str:
    """The SHA-256 of all that determines a result.

    >>> key_of(["data", 0], "calibration") == digest(["data", 0])
    True
    """
    return digest(versioned(facts, *rules))


def versioned(facts: Sequence[Any], *rules: str) -> list[Any]:
    """The facts, and the versions of the rules; the first version of a rule adds nothing."""
    changed = {rule: version for rule in rules if (version := VERSIONS.get(rule, 1)) > 1}
    return [*facts, changed] if changed else [*facts]
