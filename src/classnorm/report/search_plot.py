"""Parallel coordinates of a hyperparameter search: a line per trial, an axis per setting and one for the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm.report.plots import plot_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCORE = "validation H (%)"


def parallel_coordinates(trials: Sequence[Mapping[str, Any]]) -> Figure:
    """Each trial is `{"settings": {...}, "harmonic": number or None, "state": ...}`; pruned ones are drawn thin."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    scored = [trial for trial in trials if trial["harmonic"] is not None]
    names = [name for name in scored[0]["settings"] if len({str(t["settings"][name]) for t in scored}) > 1]
    columns = {name: _axis([trial["settings"][name] for trial in scored]) for name in names}
    harmonic = np.array([trial["harmonic"] for trial in scored], dtype=float)
    columns[_SCORE] = _axis(list(harmonic), spread=True)
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
    figure.colorbar(ScalarMappable(scale, colors), ax=axes, label=_SCORE, fraction=0.03)
    return figure


def _axis(values: Sequence[Any], spread: bool = False) -> tuple[npt.NDArray[np.float64], list[tuple[float, str]]]:
    """Heights in [0, 1] and the tick labels of an axis."""
    distinct = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    if any(isinstance(value, str | bool) for value in distinct) or (len(distinct) <= 5 and not spread):
        place = {value: i / max(len(distinct) - 1, 1) for i, value in enumerate(distinct)}
        return np.array([place[value] for value in values]), [(h, _text(value)) for value, h in place.items()]
    numbers = np.array(values, dtype=float)
    logarithmic = not spread and numbers.min() > 0 and numbers.max() / numbers.min() >= 10
    scaled = np.log(numbers) if logarithmic else numbers
    low, high = float(scaled.min()), float(scaled.max())
    ticks = {height: low + height * (high - low) for height in (0.0, 0.5, 1.0)}
    labels = [(height, _text(float(np.exp(tick) if logarithmic else tick))) for height, tick in ticks.items()]
    return (scaled - low) / max(high - low, 1e-12), labels


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else plot_text(str(value))
