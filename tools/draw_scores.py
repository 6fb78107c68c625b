"""The picture of docs/scores.md: U, S, H, T1 and AUSUC of one model on its seen–unseen curve.

`python tools/draw_scores.py` fits `eszsl`, a closed form, on glyphs-light and writes docs/images/scores.png.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from classnorm import fit
from classnorm.data import load
from classnorm.metrics import GZSLScores, gzsl_scores, seen_unseen_curve

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "scores.png"
BLUE, ORANGE, GRAY = "#1f5fa8", "#b34a12", "#555555"


def main() -> None:
    data = load("glyphs-light")
    scorer = fit(data, method="eszsl")
    features, labels = data.features[data.test_rows], data.labels[data.test_rows]
    logits = scorer.logits(features)
    curve = seen_unseen_curve(logits, labels, data.seen)

    figure = Figure(figsize=(8, 5.6), layout="constrained")
    axes = figure.subplots()
    draw_equal_h(axes)
    axes.fill_between(curve.seen, curve.unseen, color=BLUE, alpha=0.12, linewidth=0)
    axes.plot(curve.seen, curve.unseen, color=BLUE)
    axes.text(25, 32, f"AUSUC {curve.area:.1f}\nthe area under the curve", color=BLUE, ha="center", va="center")
    draw_point(axes, gzsl_scores(logits, labels, data.seen), "as trained")
    draw_point(axes, gzsl_scores(scorer.scores(features), labels, data.seen), "calibrated by validation")
    arrow = {"color": GRAY, "va": "center", "arrowprops": {"arrowstyle": "->", "color": GRAY}}
    axes.annotate(f"T1 {curve.zsl:.1f}: only unseen classes compete", (0, curve.zsl), (8, 78), **arrow)
    axes.annotate("lower the scores of all seen classes", (4, 6), (24, 6), **arrow)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    axes.set(xlabel="S: accuracy on seen classes, %", ylabel="U: accuracy on unseen classes, %")
    figure.suptitle("One model, every balance between seen and unseen classes", fontsize=12)
    figure.savefig(OUT, dpi=110, metadata={"Software": None})  # the same bytes for the same numbers
    print(OUT)


def draw_equal_h(axes: Axes) -> None:
    """Dotted lines of equal H = 2·U·S / (U + S), solved for U."""
    for h in (20, 40, 60, 80):
        seen = np.linspace(h / 2 + 0.1, 100, 2000)
        unseen = h * seen / (2 * seen - h)
        axes.plot(seen[unseen <= 100], unseen[unseen <= 100], color=GRAY, linewidth=0.7, linestyle=":")
        axes.text(99, h * 99 / (198 - h) + 0.6, f"H {h}", color=GRAY, fontsize=8, ha="right", va="bottom")


def draw_point(axes: Axes, scores: GZSLScores, label: str) -> None:
    """A point of the curve with its U, S and H."""
    axes.plot(scores.seen, scores.unseen, "o", color=ORANGE)
    text = f"{label}\nU {scores.unseen:.1f}, S {scores.seen:.1f}, H {scores.harmonic:.1f}"
    axes.text(scores.seen + 2, scores.unseen + 2, text, color=ORANGE)


if __name__ == "__main__":
    main()
