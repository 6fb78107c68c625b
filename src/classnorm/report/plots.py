"""Plots of runs: legible at column width, safe for colour-blind readers, with the same style for a model in each."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm.io.escapes import printable
from classnorm.metrics import curve_of
from classnorm.report.calibration_curves import GroupCurves, Kind, group_curves, shared_values
from classnorm.report.summary import SCORES, Group, best_group
from classnorm.results.artifact import Plot, Series

if TYPE_CHECKING:  # the import takes long: only functions that draw do it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")  # Okabe and Ito
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), "-.", (0, (1, 1)), (0, (8, 2, 1, 2, 1, 2)))
_MARKERS = "os^Dv"
_TINTS = {"unseen": "#F3C9AE", "seen": "#D4D8DC"}
_LONGEST = 400  # characters of a text in a plot
_WIDTH = 4.6  # inches; keeps the text legible on a phone
_AXIS = {"scale": "scale s: seen scores × s", "bias": "bias b: seen scores − b"}


@dataclass(frozen=True)
class Style:
    """The look of a model. Plots in which dashes have another meaning use its marker instead."""

    color: str
    dash: Any
    marker: str


def group_styles(groups: Sequence[Group]) -> dict[str, Style]:
    """A style for each label, the same on all datasets."""
    labels = dict.fromkeys(group.label for group in groups)
    return {
        label: Style(COLORS[i % len(COLORS)], _DASHES[i % len(_DASHES)], _MARKERS[i % len(_MARKERS)])
        for i, label in enumerate(labels)
    }


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


def seen_unseen_plot(groups: Sequence[Group], styles: Mapping[str, Style]) -> Figure | None:
    """U against S for each model: one line per seed, and a mark at the mean of the calibrated models.

    None if no model has test rows of both sides.
    """
    figure = new_figure(3.7, len(groups))
    axes = figure.subplots()
    for group in groups:
        style = styles[group.label]
        look = {"color": style.color, "linestyle": style.dash, "linewidth": 1.2, "alpha": 0.85}
        label = wrapped(f"{group.label} (AUSUC {group.cell('ausuc')})", 44)
        for result in group.results:
            curve = curve_of(result.sides)
            if not np.isnan(curve.area):
                axes.plot(curve.seen, curve.unseen, label=label, **look)
        if not np.isnan(group.mean("harmonic")):
            point = (group.mean("seen"), group.mean("unseen"))
            axes.plot(*point, style.marker, color=style.color, markersize=8, markeredgecolor="white", zorder=4)
    if not axes.lines:
        return None
    limit = min(100.0, max(1.05 * np.max(line.get_xydata()) for line in axes.lines))
    axes.plot([0, limit], [0, limit], color="0.8", linewidth=0.8, zorder=0)
    axes.set(xlim=(0, limit), ylim=(0, limit), xlabel="accuracy on seen classes, S (%)")
    axes.set_ylabel("accuracy on unseen classes, U (%)")
    axes.set_title("Seen–unseen curves; marks: the calibrated models", fontsize=10)
    plain(axes)
    legend(figure, axes.get_legend_handles_labels()[0])
    return figure


def calibration_plot(groups: Sequence[Group], styles: Mapping[str, Style], kind: Kind) -> Figure | None:
    """H, U and S against the scale or bias of seen scores: test solid, validation dashed. None if no H is defined."""
    defined = [group for group in groups if not np.isnan(group.mean("harmonic"))]
    if not defined:
        return None
    values = shared_values(defined, kind)
    curves = {group.label: group_curves(group, kind, values) for group in defined}
    figure = new_figure(5.6, len(curves) + 3)
    panels: Any = figure.subplots(3, 1, sharex=True, height_ratios=[1.3, 1, 1])
    for axes, name in zip(panels, ("harmonic", "unseen", "seen"), strict=True):
        for label, curve in curves.items():
            _draw_calibration(axes, curve, name, styles[label])
        axes.set_ylim(0, max(1, axes.get_ylim()[1]))
        axes.set_ylabel(f"{SCORES[name][0]} (%)")
        plain(axes)
    panels[0].set_title(f"Test and validation scores against the {kind}", fontsize=10)
    panels[-1].set_xlabel(_AXIS[kind])
    legend(figure, _calibration_handles(curves, styles))
    return figure


def _draw_calibration(axes: Axes, curves: GroupCurves, name: str, style: Style) -> None:
    marks: dict[str, Any] = {"marker": style.marker, "markersize": 4, "markevery": 10, "clip_on": False}
    for part, dash in ((curves.test, "-"), (curves.validation, "--")):
        if part is not None:
            axes.plot(part.value, getattr(part, name), dash, color=style.color, linewidth=1.5, **marks)
    for value in curves.chosen:
        axes.axvline(value, color=style.color, linewidth=1.1, linestyle=":")


def _calibration_handles(curves: Mapping[str, GroupCurves], styles: Mapping[str, Style]) -> list[Line2D]:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=styles[label].color, marker=styles[label].marker, label=wrapped(label)) for label in curves
    ]
    handles.append(Line2D([], [], color="0.3", label="test, mean over seeds"))
    if any(curve.validation is not None for curve in curves.values()):
        handles.append(Line2D([], [], color="0.3", linestyle="--", label="validation, mean over seeds"))
    if any(curve.chosen for curve in curves.values()):
        handles.append(Line2D([], [], color="0.3", linestyle=":", linewidth=1.1, label="in use, one line per seed"))
    return handles


def class_plot(groups: Sequence[Group], styles: Mapping[str, Style]) -> Figure:
    """Sorted accuracies of the unseen and of the seen classes: a line for each model, bars for the best one."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    best = best_group(groups)
    tested = best.classes.rows > 0
    sides = {"unseen": tested & ~best.classes.seen, "seen": tested & best.classes.seen}
    sides = {name: mask for name, mask in sides.items() if mask.any()}
    figure = new_figure(1.9 * len(sides), len(groups) + len(sides))
    panels: Any = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
    for axes, (name, mask) in zip(panels, sides.items(), strict=True):
        edges = np.arange(mask.sum() + 1)
        for group in groups:
            heights = np.sort(group.classes.accuracies.mean(axis=0)[mask])[::-1]
            style = styles[group.label]
            if group is best:
                axes.stairs(heights, edges, fill=True, color=_TINTS[name], zorder=1)
            axes.stairs(heights, edges, baseline=None, color=style.color, linestyle=style.dash, linewidth=1.4, zorder=2)
        axes.set(xlim=(0, len(edges) - 1), ylim=(0, 102), ylabel="accuracy (%)")
        classes = "class" if mask.sum() == 1 else "classes"
        axes.set_xlabel(f"{mask.sum()} {name} {classes}, from each model's best to its worst")
        whole_ticks(axes)
        plain(axes)
    panels[0].set_title("Accuracy of each class, mean over seeds", fontsize=10)
    handles: list[Any] = [
        Line2D([], [], color=styles[g.label].color, linestyle=styles[g.label].dash, label=wrapped(g.label))
        for g in groups
    ]
    handles += [Patch(color=_TINTS[name], label=f"{name} classes, {wrapped(best.label)}") for name in sides]
    legend(figure, handles)
    return figure


def training_plot(groups: Sequence[Group]) -> Plot:
    """Training loss by epoch, one line per seed; no series for methods without epochs."""
    series = [
        Series(group.label, group.label, [line["epoch"] for line in lines], [line["loss"] for line in lines])
        for group in groups
        for result in group.results
        if (lines := [line for line in result.history if {"epoch", "loss"} <= line.keys()])
    ]
    losses = [loss for line in series for loss in line.y]
    limits = [min(0.0, *losses), 1.05 * max(losses)] if losses else None
    return Plot("training", "lines", "Training, one line per seed", "epoch", "training loss", series, limits=limits)


def new_figure(height: float, legend_lines: int) -> Figure:
    """A figure as wide as a column of the page, with room for a legend below the plots."""
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH, height + 0.17 * legend_lines), layout="constrained")


def legend(figure: Figure, handles: Sequence[Any]) -> None:
    """A legend below the plots, with one entry per label."""
    if handles:
        unique = list({handle.get_label(): handle for handle in handles}.values())
        figure.legend(handles=unique, fontsize=8, frameon=False, loc="outside lower left", labelspacing=0.3)


def whole_ticks(axes: Axes) -> None:
    """No ticks between whole numbers, for an axis of classes, tasks or epochs."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def plain(axes: Axes) -> None:
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def example_grid(images: npt.NDArray[np.uint8], truth: Sequence[str], predicted: Sequence[str]) -> Figure:
    """Test images of unseen classes with the true and the predicted class; wrong predictions in orange."""
    from matplotlib.figure import Figure

    columns = 6
    n_rows = -(-len(images) // columns)
    figure = Figure(figsize=(1.65 * columns, 1.95 * n_rows), layout="constrained")
    grid: Any = figure.subplots(n_rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, image, true, guess in zip(grid.flat, images, truth, predicted, strict=False):
        right = true == guess
        axes.imshow(image, cmap="gray_r" if image.mean() < 128 else "gray")
        text = f"✓ {wrapped(true, 24)}" if right else f"{wrapped(true, 24)}\n✗ {wrapped(guess, 24)}"
        axes.set_title(text, fontsize=6.5, color=COLORS[2] if right else COLORS[5], y=-0.02, va="top")
    return figure


def wrapped(name: str, width: int = 60) -> str:
    """A name on at most three lines."""
    return plot_text("\n".join(textwrap.wrap(name[: 4 * width].replace("_", " "), width)[:3]))


def plot_text(text: str) -> str:
    """Text for a plot that is not read as a formula, and not too long to draw."""
    return printable(text[:_LONGEST]).replace("$", r"\$")
