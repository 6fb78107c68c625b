"""The document of a run of `classnorm bench` as tables and a plot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classnorm.report.draw import COLORS
from classnorm.results.artifact import Plot, Series, Table
from classnorm_lab.bench.measures import Comparison, Measure, measures

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
