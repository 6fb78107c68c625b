"""Plots, legible at column width and safe for colour-blind readers."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from classnorm.metrics import curve_of
from classnorm.report.summary import Group

__all__ = ["COLORS", "example_grid", "png", "seen_unseen_plot"]

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")  # Okabe and Ito
_DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, bbox_inches="tight", metadata={"Software": None})
    return buffer.getvalue()


def seen_unseen_plot(groups: Sequence[Group]) -> Figure:
    """U against S for each model: one thin line per seed, a dot where the calibrated models stand on average."""
    figure = Figure(figsize=(5.2, 4.2), layout="constrained")
    axes = figure.subplots()
    top = 0.0
    for i, group in enumerate(groups):
        color, dash = COLORS[i % len(COLORS)], _DASHES[i // len(COLORS) % len(_DASHES)]
        for number, result in enumerate(group.results):
            curve = curve_of(result.sides)
            if np.isnan(curve.area):
                continue
            label = f"{group.label} (AUSUC {group.cell('ausuc')})" if number == 0 else None
            axes.plot(curve.seen, curve.unseen, color=color, linestyle=dash, linewidth=1.4, alpha=0.85, label=label)
            top = max(top, curve.seen.max(), curve.unseen.max())
        if not np.isnan(group.mean("harmonic")):
            axes.plot(group.mean("seen"), group.mean("unseen"), "o", color=color, markersize=8, markeredgecolor="white")
    limit = min(100.0, 1.05 * top) if top else 100.0
    axes.plot([0, limit], [0, limit], color="0.8", linewidth=0.8, zorder=0)
    axes.set(xlim=(0, limit), ylim=(0, limit), xlabel="accuracy on seen classes, S (%)")
    axes.set_ylabel("accuracy on unseen classes, U (%)")
    axes.set_title("Seen–unseen curves; dots: the calibrated models", fontsize=10)
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False, loc="lower left")
    return figure


def example_grid(
    images: npt.NDArray[np.uint8], truth: Sequence[str], predicted: Sequence[str], columns: int = 6
) -> Figure:
    """Test images of unseen classes, with the true and the predicted class beneath; wrong ones in orange."""
    n_rows = -(-len(images) // columns)
    figure = Figure(figsize=(1.65 * columns, 1.95 * n_rows), layout="constrained")
    grid: Any = figure.subplots(n_rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, image, true, guess in zip(grid.flat, images, truth, predicted, strict=False):
        right = true == guess
        axes.imshow(image, cmap="gray_r" if image.mean() < 128 else "gray")
        text = _wrapped(true) if right else f"{_wrapped(true)}\n✗ {_wrapped(guess)}"
        axes.set_title(
            ("✓ " if right else "") + text, fontsize=6.5, color=COLORS[2] if right else COLORS[5], y=-0.02, va="top"
        )
    return figure


def _wrapped(name: str, width: int = 24) -> str:
    return "\n".join(textwrap.wrap(name.replace("_", " "), width)[:3])
