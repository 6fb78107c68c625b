"""Draws `Plot` data, and the look that all plots share: legible at column width, safe for colour-blind readers."""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from classnorm.io.escapes import printable
from classnorm.results.artifact import Plot
from classnorm.results.numbers import number_text

if TYPE_CHECKING:  # the import takes long: only functions that draw do it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")  # Okabe and Ito
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), "-.", (0, (1, 1)), (0, (8, 2, 1, 2, 1, 2)))
_LONGEST = 400  # characters of a text in a plot
_WIDTH = 4.6  # inches; keeps the text legible on a phone
_BLUE, _RED = COLORS[0], COLORS[5]
_BOX = "#C9DCEB"
_BROWN = "#7F4F24"
_NUMBERED = 15  # a heat map with more rows shows no numbers
_LINE = 8.5  # height of a line at a font size of 7, in points
_MARGINS = 0.8  # height of title and labels of a figure, in inches


@dataclass(frozen=True)
class Style:
    """The look of a model. Plots in which dashes have another meaning use its marker instead."""

    color: str
    dash: Any
    marker: str


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


def draw(plot: Plot, styles: Mapping[str, Style] = {}) -> Figure:
    """The figure of a plot; lines of models in `styles` have that style."""
    if plot.kind == "heatmap":
        return _heatmap(plot)
    labels = {series.label for series in plot.series} if plot.kind in ("lines", "bars") else {""}
    height = max(3.0, _LINE / 72 * len(plot.series) + _MARGINS) if plot.kind == "points" else 3.0
    figure = new_figure(height, len(labels) + len(plot.lines_at))
    axes = figure.subplots()
    axes.set(xscale="log" if plot.log_x else "linear", yscale="log" if plot.log_y else "linear")
    if plot.kind == "lines":
        _lines(axes, plot, styles)
    else:
        {"boxes": _boxes, "histogram": _histogram, "points": _points, "bars": _bars}[plot.kind](axes, plot)
    handles: list[Any] = list(axes.get_legend_handles_labels()[0])
    for label, height in plot.lines_at.items():
        handles.append(
            axes.axhline(height, color="0.4", linewidth=0.9, linestyle=(0, (2, 2)), label=plot_text(label), zorder=1)
        )
    axes.set(xlabel=plot_text(plot.x_label), ylabel=plot_text(plot.y_label))
    axes.set_title(textwrap.fill(plot_text(plot.title), 58), fontsize=10)
    plain(axes)
    legend(figure, handles)
    return figure


def _lines(axes: Axes, plot: Plot, styles: Mapping[str, Style]) -> None:
    looks = _looks(plot)
    variants = dict.fromkeys(series.variant for series in plot.series if series.variant)
    dashes = dict(zip(variants, itertools.cycle(DASHES[1:]), strict=False))
    for series in plot.series:
        color, marker = looks[series.model]
        style = styles.get(series.model, Style(color, dashes.get(series.variant, "-"), marker))
        look = {"color": style.color, "linestyle": style.dash, "linewidth": 1.4, "marker": style.marker}
        every = max(1, len(series.x) // 10)
        axes.plot(series.x, series.y, label=wrapped(series.label), markersize=4, markevery=every, **look)
        if series.low is not None and series.high is not None:
            axes.fill_between(series.x, series.low, series.high, color=style.color, alpha=0.15, linewidth=0)
    if plot.log_x:
        axes.xaxis.set_major_formatter("{x:g}")
    elif all(value.is_integer() for series in plot.series for value in map(float, series.x)):
        whole_ticks(axes)
    if plot.limits:
        axes.set_ylim(*plot.limits)


def _looks(plot: Plot) -> dict[str, tuple[str, str]]:
    """Colour and marker of each model; those without a colour of their own get one that no other line has."""
    own = {series.model: plot.colors[series.model] for series in plot.series if series.model in plot.colors}
    free = [color for color in (*COLORS, _BROWN, "0.5") if color not in own.values()] or COLORS
    others = (model for model in dict.fromkeys(series.model for series in plot.series) if model not in own)
    looks = ((color, marker) for marker in ("", "s", "^", "D") for color in free)
    return {model: (color, "") for model, color in own.items()} | dict(
        zip(others, itertools.cycle(looks), strict=False)
    )


def _heatmap(plot: Plot) -> Figure:
    """A square of cells, with their values if there is room; a line separates past from future tasks."""
    values = np.array([series.y for series in plot.series])
    low, high = plot.limits or (0.0, 100.0)
    figure = new_figure(4.1, 0)
    axes = figure.subplots()
    image = axes.imshow(values, cmap="Blues", vmin=low, vmax=high)
    ticks = np.unique(np.linspace(0, len(values) - 1, min(len(values), _NUMBERED)).round().astype(int))
    axes.set_xticks(ticks, [f"{plot.series[0].x[i]:g}" for i in ticks], fontsize=8)
    axes.set_yticks(ticks, [plot_text(plot.series[i].label) for i in ticks], fontsize=8)
    if len(values) <= _NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            color = "white" if value - low > 0.65 * (high - low) else "0.15"
            size = 9 if len(values) <= 10 else 6.5
            axes.text(column, row, number_text(value, 0), ha="center", va="center", fontsize=size, color=color)
    edges = np.arange(len(values) + 1) - 0.5
    axes.step(edges, edges, where="post", color=_RED, linewidth=1.2)
    axes.set(xlabel=plot_text(plot.x_label), ylabel=plot_text(plot.y_label))
    axes.set_title(textwrap.fill(plot_text(plot.title), 58), fontsize=10)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03).outline.set_visible(False)
    return figure


def _boxes(axes: Axes, plot: Plot) -> None:
    positions = np.arange(len(plot.series))
    if len(plot.series):
        axes.boxplot(
            [series.y for series in plot.series],
            positions=positions,
            widths=0.6,
            patch_artist=True,
            boxprops={"facecolor": _BOX, "linewidth": 0.8},
            medianprops={"color": "0.1"},
            flierprops={"markersize": 2.5, "markeredgecolor": "0.5"},
        )
    axes.set_xticks(positions, [textwrap.fill(plot_text(series.label), 12) for series in plot.series], fontsize=7)
    expected = [(at, series.x[0]) for at, series in enumerate(plot.series) if series.x]
    if expected:
        x, y = zip(*expected, strict=True)
        axes.plot(x, y, "D", color=_RED, markersize=5, linestyle="none", label="expected by theory", zorder=4)


def _points(axes: Axes, plot: Plot) -> None:
    """Points, with their labels in a column on the right, in the order of their heights."""
    axes.margins(x=0.08, y=0.08)
    for series in plot.series:
        axes.plot(series.x, series.y, "o", color=plot.colors.get(series.model, "0.45"), markersize=6)
    axes.autoscale_view()
    ordered = sorted(plot.series, key=lambda series: -series.y[0])
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = [float(to_axes.transform((series.x[0], series.y[0]))[1]) for series in ordered]
    step = _LINE / (72 * (axes.figure.bbox.height / axes.figure.dpi - _MARGINS))
    for i in range(1, len(heights)):
        heights[i] = min(heights[i], heights[i - 1] - step)
    for i in range(len(heights) - 1, -1, -1):
        heights[i] = max(heights[i], heights[i + 1] + step if i + 1 < len(heights) else 0.0)
    leader = {"arrowstyle": "-", "color": "0.75", "linewidth": 0.5, "relpos": (0.0, 0.5), "shrinkA": 1, "shrinkB": 4}
    for series, height in zip(ordered, heights, strict=True):
        place: dict[str, Any] = {"xytext": (1.06, height), "textcoords": "axes fraction", "va": "center"}
        axes.annotate(plot_text(series.label), (series.x[0], series.y[0]), fontsize=7, arrowprops=leader, **place)


def _bars(axes: Axes, plot: Plot) -> None:
    """Stacked in the order of the series."""
    tops, looks = np.zeros(len(plot.ticks)), _looks(plot)
    for series in plot.series:
        color, _ = looks[series.model]
        axes.bar(
            series.x, series.y, 0.8, tops, color=color, edgecolor="white", linewidth=0.5, label=plot_text(series.label)
        )
        tops += series.y
    if plot.series:
        axes.set_xticks(plot.series[0].x, list(map(plot_text, plot.ticks)), fontsize=7)


def _histogram(axes: Axes, plot: Plot) -> None:
    for series in plot.series:
        middle = np.array(series.x)
        half = (middle[1] - middle[0]) / 2
        edges = np.append(middle - half, middle[-1] + half)
        axes.stairs(series.y, edges, fill=True, color=_BOX)
        axes.stairs(series.y, edges, color=_BLUE, linewidth=0.9, label="attributes")
    x = np.linspace(*axes.get_xlim(), 200)
    axes.plot(x, np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), color=_RED, linewidth=1.2, label="normal distribution")


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


def wrapped(name: str, width: int = 60) -> str:
    """A name on at most three lines."""
    return plot_text("\n".join(textwrap.wrap(name[: 4 * width].replace("_", " "), width)[:3]))


def plot_text(text: str) -> str:
    """Text for a plot that is not read as a formula, and not too long to draw."""
    return printable(text[:_LONGEST]).replace("$", r"\$")
