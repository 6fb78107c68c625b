"""Bar charts of the contributions to an answer."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from classnorm.report.plots import COLORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FOR, _AGAINST = COLORS[0], COLORS[5]
_WIDTH, _ROW, _HEAD = 6.4, 0.22, 0.85  # inches: the figure, a bar, and title and axis of a panel


def contribution_plot(answers: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Figure:
    """A panel for each answer: its title, and a named bar for each contribution, to the right if it is positive."""
    from matplotlib.figure import Figure

    heights = [_HEAD + _ROW * max(1, len(bars)) for _, bars in answers]
    figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
    panels = figure.subplots(len(answers), 1, squeeze=False, height_ratios=heights)
    for axes, (title, bars) in zip(panels[:, 0], answers, strict=True):
        values = [value for _, value in bars]
        axes.barh(range(len(values)), values, color=[_FOR if value > 0 else _AGAINST for value in values])
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
