"""The plot of a search."""

import pytest
from matplotlib.colors import to_hex

from classnorm.report.plots import parallel_coordinates


@pytest.fixture
def trials():
    values = [
        (1e-4, 256, "complete", 50.0),
        (1e-3, 512, "complete", 60.0),
        (3e-3, 512, "pruned", 65.0),
        (1e-2, 256, "failed", None),
    ]
    return [{"settings": {"lr": a, "hidden": b}, "state": c, "harmonic": d} for a, b, c, d in values]


def test_every_scored_trial_is_a_line_and_every_setting_an_axis(trials):
    axes = parallel_coordinates(trials).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert len(lines) == 3
    assert [label.get_text() for label in axes.get_xticklabels()] == ["lr", "hidden", "validation H (%)"]


def test_the_winner_is_the_best_complete_trial_not_a_pruned_one(trials):
    axes = parallel_coordinates(trials).axes[0]
    thick = max(axes.lines, key=lambda line: line.get_linewidth())
    assert to_hex(thick.get_color()).upper() == "#D55E00"
    assert thick.get_ydata()[2] == pytest.approx((60 - 50) / (65 - 50))


def test_a_setting_that_never_varies_has_no_axis(trials):
    same = [trial | {"settings": trial["settings"] | {"hidden": 64}} for trial in trials]
    axes = parallel_coordinates(same).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["lr", "validation H (%)"]
