"""Measurements with their spread, the document that holds them, and what changed between two documents."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from classnorm.errors import DataError
from classnorm.io.documents import read_json

FORMAT = "classnorm-bench"
Unit = Literal["s", "CPU s", "GB", "rows/s", "GFLOP/s", "×", "share"]
_LOWER_IS_BETTER = ("s", "CPU s", "GB")
_NOTICEABLE = 0.02  # a smaller change of the median is none, however small the spread


@dataclass(frozen=True)
class Measure:
    """The median of repeated measurements and their range."""

    median: float
    low: float
    high: float
    unit: Unit

    @classmethod
    def of(cls, values: Sequence[float], unit: Unit) -> Measure:
        """Of one or more measurements.

        >>> Measure.of([3.0, 1.0, 2.5], "s")
        Measure(median=2.5, low=1.0, high=3.0, unit='s')
        """
        return cls(statistics.median(values), min(values), max(values), unit)

    def __str__(self) -> str:
        """The median, and the range if there is one.

        >>> str(Measure(2.5, 1.0, 3.0, "s")), str(Measure(0.615, 0.615, 0.615, "share"))
        ('2.5 (1–3)', '61.5%')
        """
        middle, low, high = (_number(value, self.unit) for value in (self.median, self.low, self.high))
        return middle if low == high else f"{middle} ({low}–{high})"


def measured(values: Sequence[float], unit: Unit) -> dict[str, Any]:
    """The entry of a document for one or more measurements."""
    return asdict(Measure.of(values, unit))


def _number(value: float, unit: Unit) -> str:
    if unit == "share":
        return f"{100 * value:.3g}%"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def measures(document: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Measure]]:
    """Every measurement of a document with a name made of the keys that lead to it."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            here = path if key == "shapes" else (*path, key)
            if set(value) == {"median", "low", "high", "unit"}:
                yield " ".join(here).replace("_", " "), Measure(**value)
            else:
                yield from measures(value, here)


def read_bench(path: Path) -> dict[str, Any]:
    """A document that `classnorm bench` wrote."""
    try:
        document: dict[str, Any] = read_json(path, dict[str, Any], "give one that `classnorm bench` wrote")
        if document["format"] != FORMAT:
            raise ValueError("another format")
        document["machine"]["versions"], document["settings"], list(measures(document))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; give the bench.json of an earlier `classnorm bench`") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a readable bench.json; give one that `classnorm bench` wrote") from error
    return document


@dataclass(frozen=True)
class Change:
    """How one quantity changed."""

    name: str
    old: Measure
    new: Measure

    @property
    def ratio(self) -> float:
        """New over old median."""
        return self.new.median / self.old.median if self.old.median else 1.0

    @property
    def verdict(self) -> Literal["slower", "faster", "more", "less", ""]:
        """Empty unless the ranges of both are apart and the medians differ noticeably; memory is more or less."""
        if abs(self.ratio - 1.0) <= _NOTICEABLE or not (self.new.low > self.old.high or self.new.high < self.old.low):
            return ""
        grew = self.ratio > 1.0
        if self.new.unit == "GB":
            return "more" if grew else "less"
        return "slower" if grew == (self.new.unit in _LOWER_IS_BETTER) else "faster"


@dataclass(frozen=True)
class Comparison:
    """What changed between two documents."""

    changes: list[Change]
    differences: list[str]
    """What else differs: machine, threads, versions, settings, data."""
    unmatched: list[str]
    """Quantities that only one of them has."""

    def as_dict(self) -> dict[str, Any]:
        changes = [
            {"name": c.name, "old": asdict(c.old), "new": asdict(c.new), "ratio": c.ratio, "verdict": c.verdict}
            for c in self.changes
        ]
        return {"changes": changes, "differences": self.differences, "unmatched": self.unmatched}


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """How each quantity that both documents have changed from `old` to `new`."""
    before, after = dict(measures(old)), dict(measures(new))
    changes = [Change(name, before[name], after[name]) for name in after if name in before]
    return Comparison(changes, _differences(old, new), sorted(before.keys() ^ after.keys()))


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, after = _conditions(old), _conditions(new)
    return [
        f"{name} {before.get(name, 'unknown')} → {after.get(name, 'unknown')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _conditions(document: Mapping[str, Any]) -> dict[str, str]:
    """Everything that makes two documents hard to compare if it differs."""
    record = {**document["machine"], **document["machine"]["versions"], **document["settings"]}
    record |= {f"{name} data": shape.get("data") for name, shape in document.get("shapes", {}).items()}
    return {name.replace("_", " "): str(value) for name, value in record.items() if name != "versions"}
