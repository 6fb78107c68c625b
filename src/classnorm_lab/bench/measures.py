"""Measurements with their spread, the document that holds them, its tables and plot, and what changed between two."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from classnorm.errors import DataError
from classnorm.io.documents import read_json
from classnorm.report.draw import COLORS
from classnorm.results.artifact import Plot, Series, Table

FORMAT = "classnorm-bench"
Unit = Literal["s", "CPU s", "GB", "rows/s", "GFLOP/s", "×", "share"]
_LOWER_IS_BETTER = ("s", "CPU s", "GB")
_NOTICEABLE = 0.02  # a smaller change of the median is none, however small the spread
_LOOPS = ("ours", "textbook")
_STAGES = {
    "gather": "gather rows",
    "embedder": "embedder forward",
    "logits": "logits and loss",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other",
}
_COLORS = dict(zip(_STAGES, [COLORS[1], COLORS[4], COLORS[2], COLORS[0], COLORS[3], "#999999"], strict=True))
_NO_VALUE = "–"
NOTES = """\
The time of a training is extrapolated from one epoch and its preparation; the speed-up is that of whole trainings.
Of product limit: the time of the bare matrix products of an epoch over the time of the epoch.
Start-up is in CPU seconds, everything else in wall time; memory is the peak of the process, data included."""


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


def bench_tables(document: Mapping[str, Any]) -> list[Table]:
    """Training, the stages of its steps, and everything else."""
    stages = [_stage_table(document["shapes"])] if _has_stages(document) else []
    return [_training_table(document["shapes"]), *stages, _other_table(document)]


def _training_table(shapes: Mapping[str, Any]) -> Table:
    rows = []
    for name, shape in shapes.items():
        sizes = f"{shape['rows']:,} × {shape['features_dim']}, {shape['data']}"
        for loop in _LOOPS:
            part = shape[loop]
            ours = loop == "ours"
            rows.append(
                [
                    f"{name} {loop}" + (f" ({sizes})" if ours else ""),
                    _text(part["epoch"]),
                    _text(part["training"]),
                    _text(shape["textbook_over_ours"]) if ours else "1",
                    _text(shape["product_share"]) if ours else _NO_VALUE,
                    _text(part.get("memory")),
                ]
            )
    epochs = next(iter(shapes.values()))["epochs"]
    header = ["training", "s per epoch", f"s for {epochs} epochs", "speed-up", "of product limit", "peak GB"]
    return Table.of("Training with the recipe reference: median (range)", header, rows)


def _stage_table(shapes: Mapping[str, Any]) -> Table:
    rows = []
    for name, shape in shapes.items():
        for loop in _LOOPS:
            milliseconds = [1000 * shape[loop]["step"][stage]["median"] for stage in _STAGES]
            rows.append([f"{name} {loop}", *(f"{value:.2f}" for value in (*milliseconds, sum(milliseconds)))])
    return Table.of("Where the time of a step goes, in ms (medians)", ["step", *_STAGES.values(), "sum"], rows)


def _other_table(document: Mapping[str, Any]) -> Table:
    shown = {"ours", "textbook", "textbook_over_ours", "product_share"}
    shapes = {
        name: {key: value for key, value in shape.items() if key not in shown}
        for name, shape in document["shapes"].items()
    }
    rows = [[name, str(measure), measure.unit] for name, measure in measures({**document, "shapes": shapes})]
    return Table.of("Everything else", ["quantity", "median (range)", "unit"], rows)


def _text(entry: Mapping[str, Any] | None) -> str:
    return str(Measure(**entry)) if entry else _NO_VALUE


def comparison_table(comparison: Comparison) -> Table:
    """Old and new value of each quantity, their ratio and a verdict."""
    rows = [[c.name, str(c.old), str(c.new), c.new.unit, f"{c.ratio:.2f}", c.verdict] for c in comparison.changes]
    return Table.of(
        "Changes: a verdict where the ranges do not overlap", ["quantity", "old", "new", "unit", "new/old", ""], rows
    )


def _has_stages(document: Mapping[str, Any]) -> bool:
    return all(shape[loop]["step"] for shape in document["shapes"].values() for loop in _LOOPS)


def step_plot(document: Mapping[str, Any]) -> Plot:
    """Stacked bars: where the time of a step goes, ours beside the textbook loop; empty for an accelerator."""
    bars = [(name, loop) for name in document["shapes"] for loop in _LOOPS] if _has_stages(document) else []
    positions = [i + 0.5 * (i // len(_LOOPS)) for i in range(len(bars))]
    steps = [document["shapes"][name][loop]["step"] for name, loop in bars]
    series = [
        Series(label, stage, positions, [1000 * step[stage]["median"] for step in steps])
        for stage, label in _STAGES.items()
    ]
    ticks = [f"{name}\n{loop}" for name, loop in bars]
    threads = document["machine"]["threads"]
    title = f"Where the time of a training step goes, {threads} thread{'s' * (threads > 1)}"
    return Plot("bench", "bars", title, "", "ms per step (medians)", series, ticks=ticks, colors=_COLORS)
