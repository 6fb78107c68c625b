"""Plots of runs, with one style for a model in all; of the trials of a search; of what speaks for an answer."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.metrics import Calibration, curve_of
from classnorm.metrics.calibration import CalibrationCurves, calibration_curves, calibration_values
from classnorm.report.draw import COLORS, DASHES, Style, legend, new_figure, plain, plot_text, whole_ticks, wrapped
from classnorm.report.summary import SCORES, Group, best_group
from classnorm.results.artifact import Plot, Series
from classnorm.results.run_folder import Result

if TYPE_CHECKING:  # the import takes long: only functions that draw do it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_MARKERS = "os^Dv"
_TINTS = {"unseen": "#F3C9AE", "seen": "#D4D8DC"}
_AXIS = {"scale": "scale s: seen scores × s", "bias": "bias b: seen scores − b"}
_N_VALUES = 61  # points of a calibration curve
_SEARCHED = "validation H (%)"
_BAR_WIDTH, _BAR, _BAR_HEAD = 6.4, 0.22, 0.85  # inches: the figure, a bar, and title and axis of a panel

Kind = Literal["scale", "bias"]
Floats = npt.NDArray[np.float64]


def group_styles(groups: Sequence[Group]) -> dict[str, Style]:
    """A style for each label, the same on all datasets."""
    labels = dict.fromkeys(group.label for group in groups)
    return {
        label: Style(COLORS[i % len(COLORS)], DASHES[i % len(DASHES)], _MARKERS[i % len(_MARKERS)])
        for i, label in enumerate(labels)
    }


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
            curve = curve_of(result.best_scores)
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


@dataclass(frozen=True)
class GroupCurves:
    """Curves averaged over the seeds of a group."""

    test: CalibrationCurves
    validation: CalibrationCurves | None
    """None without validation."""
    chosen: list[float]
    """The value of each run with this kind of calibration; 1 (scale) or 0 (bias) for runs without calibration."""


def shared_values(groups: Sequence[Group], kind: Kind) -> Floats:
    """Values that span the curves of all groups, for a shared axis."""
    ranges = []
    for result in (result for group in groups for result in group.results):
        recorded = _recorded(result, kind)
        ranges.append(
            recorded["value"] if recorded else calibration_values([result.best_scores], kind, _calibration_of(result))
        )
    return np.linspace(min(values[0] for values in ranges), max(values[-1] for values in ranges), _N_VALUES)


def group_curves(group: Group, kind: Kind, values: Floats) -> GroupCurves:
    neutral = 1.0 if kind == "scale" else 0.0
    calibrations = [_calibration_of(result) for result in group.results]
    return GroupCurves(
        calibration_curves([result.best_scores for result in group.results], kind, values),
        _validation_curves(group, kind, values),
        [neutral if c.kind == "none" else c.value for c in calibrations if c.kind in ("none", kind)],
    )


def _calibration_of(result: Result) -> Calibration:
    return Calibration.parse(result.document["calibration"])


def _recorded(result: Result, kind: Kind) -> dict[str, Any] | None:
    """The validation curves of a run; None without validation and in runs of older versions."""
    record: dict[str, Any] | None = ((result.document.get("validation") or {}).get("curves") or {}).get(kind)
    return record


def _with_nan(values: Sequence[float | None]) -> Floats:
    """With NaN for null, as where a side of the validation has no rows."""
    return np.array(values, dtype=np.float64)


def _validation_curves(group: Group, kind: Kind, values: Floats) -> CalibrationCurves | None:
    """Mean over seeds; NaN outside the range that the curves of all seeds share."""
    records = [record for result in group.results if (record := _recorded(result, kind))]
    if not records:
        return None
    curves = (
        [np.interp(values, record["value"], _with_nan(record[name]), left=np.nan, right=np.nan) for record in records]
        for name in ("unseen", "seen", "harmonic")
    )
    return CalibrationCurves(values, *(np.mean(curve, axis=0) for curve in curves))


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


def contribution_plot(answers: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Figure:
    """A panel for each answer: its title, and a named bar for each contribution, to the right if it is positive."""
    from matplotlib.figure import Figure

    heights = [_BAR_HEAD + _BAR * max(1, len(bars)) for _, bars in answers]
    figure = Figure(figsize=(_BAR_WIDTH, sum(heights)), layout="constrained")
    panels = figure.subplots(len(answers), 1, squeeze=False, height_ratios=heights)
    for axes, (title, bars) in zip(panels[:, 0], answers, strict=True):
        values = [value for _, value in bars]
        axes.barh(range(len(values)), values, color=[COLORS[0] if value > 0 else COLORS[5] for value in values])
        axes.set_yticks(range(len(values)), [textwrap.shorten(name, 46, placeholder="…") for name, _ in bars])
        axes.set_title(textwrap.fill(title, 76), fontsize=10, loc="left")
        for text in (axes.title, *axes.get_yticklabels(), axes._left_title):
            text.set_parse_math(False)  # names may hold any sign
        axes.invert_yaxis()
        axes.axvline(0.0, color="0.3", linewidth=0.8)
        axes.tick_params(axis="y", labelsize=8, length=0)
        axes.set_xlabel("contribution to the difference of the scores", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def parallel_coordinates(trials: Sequence[Mapping[str, Any]]) -> Figure:
    """Each trial is `{"settings": {...}, "harmonic": number or None, "state": ...}`; pruned ones are drawn thin."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    scored = [trial for trial in trials if trial["harmonic"] is not None]
    names = [name for name in scored[0]["settings"] if len({str(t["settings"][name]) for t in scored}) > 1]
    columns = {name: _parallel_axis([trial["settings"][name] for trial in scored]) for name in names}
    harmonic = np.array([trial["harmonic"] for trial in scored], dtype=float)
    columns[_SEARCHED] = _parallel_axis(list(harmonic), spread=True)
    positions = np.stack([column[0] for column in columns.values()])  # [n_axes, n_trials]

    figure = Figure(figsize=(max(5.0, 1.35 * len(columns) + 1.2), 3.8), layout="constrained")
    axes = figure.subplots()
    colors = matplotlib.colormaps["cividis"]
    scale = Normalize(harmonic.min(), max(harmonic.max(), harmonic.min() + 1e-9))
    pruned = np.array([trial["state"] == "pruned" for trial in scored])
    winner = int(np.where(pruned, -np.inf, harmonic).argmax())  # H of a pruned trial is from fewer splits
    for i in np.argsort(harmonic):
        width, alpha = (3.0, 1.0) if i == winner else (0.8, 0.5) if pruned[i] else (1.5, 0.9)
        color = "#D55E00" if i == winner else colors(scale(harmonic[i]))
        axes.plot(positions[:, i], color=color, linewidth=width, alpha=alpha)
    box = {"fc": "white", "ec": "none", "pad": 0.6, "alpha": 0.75}
    for x, (_, ticks) in enumerate(columns.values()):
        axes.axvline(x, color="0.4", linewidth=0.8)
        for height, text in ticks:
            axes.text(x + 0.03, height, text, fontsize=7, va="center", bbox=box)
    axes.set_xticks(range(len(columns)), [plot_text(name.replace("_", " ")) for name in columns], fontsize=8)
    axes.set(yticks=[], ylim=(-0.06, 1.06), xlim=(-0.15, len(columns) - 0.6))
    axes.spines[:].set_visible(False)
    axes.set_title("Trials; the winner in orange, pruned ones thin", fontsize=10)
    figure.colorbar(ScalarMappable(scale, colors), ax=axes, label=_SEARCHED, fraction=0.03)
    return figure


def _parallel_axis(values: Sequence[Any], spread: bool = False) -> tuple[Floats, list[tuple[float, str]]]:
    """Heights in [0, 1] and the tick labels of an axis."""
    distinct = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    if any(isinstance(value, str | bool) for value in distinct) or (len(distinct) <= 5 and not spread):
        place = {value: i / max(len(distinct) - 1, 1) for i, value in enumerate(distinct)}
        return np.array([place[value] for value in values]), [(h, _tick_text(value)) for value, h in place.items()]
    numbers = np.array(values, dtype=float)
    logarithmic = not spread and numbers.min() > 0 and numbers.max() / numbers.min() >= 10
    scaled = np.log(numbers) if logarithmic else numbers
    low, high = float(scaled.min()), float(scaled.max())
    ticks = {height: low + height * (high - low) for height in (0.0, 0.5, 1.0)}
    labels = [(height, _tick_text(float(np.exp(tick) if logarithmic else tick))) for height, tick in ticks.items()]
    return (scaled - low) / max(high - low, 1e-12), labels


def _tick_text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else plot_text(str(value))
