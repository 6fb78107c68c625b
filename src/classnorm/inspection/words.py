"""Words that agree with a number, for warnings."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["are", "counted", "have", "some", "verb"]


def counted(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def are(n: int) -> str:
    return "is" if n == 1 else "are"


def have(n: int) -> str:
    return "has" if n == 1 else "have"


def verb(n: int, plural: str) -> str:
    return plural + "s" if n == 1 else plural


def some(items: Sequence[object], total: int | None = None) -> str:
    """
    >>> some(["a", "b", "c", "d"])
    'a, b, c, …'
    """
    return ", ".join(map(str, items[:3])) + (", …" if (total or len(items)) > 3 else "")
