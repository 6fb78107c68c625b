"""Plots drawn from their descriptions."""

import itertools

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from classnorm.report.draw import COLORS, draw, png
from classnorm.results.artifact import Plot, Series

PNG = b"\x89PNG\r\n\x1a\n"
KINDS = ("lines", "boxes", "histogram", "points", "bars")


def line(label, model, y=(1.0, 2.0, 4.0), **options):
    return Series(label, model, [1.0, 2.0, 3.0], list(y), **options)


def plot(kind, *series, **options):
    return Plot("name", kind, "A title", "across", "up", list(series), **options)


def of_kind(kind):
    if kind == "points":
        return plot(kind, Series("a", "3-layer MLP + CN", [0.5], [60.0]), Series("b", "DEM", [100.0], [50.0]))
    ticks = ["x", "y", "z"] if kind == "bars" else []
    return plot(kind, line("a", "Linear"), line("b", "3-layer MLP"), ticks=ticks)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws(kind):
    figure = draw(of_kind(kind))
    assert png(figure).startswith(PNG)
    (axes,) = figure.axes
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("A title", "across", "up")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plot_of_nothing_draws(kind):
    assert png(draw(plot(kind))).startswith(PNG)
    assert png(draw(plot(kind, log_y=True, lines_at={"one": 1.0}))).startswith(PNG)


@pytest.mark.parametrize(("log_x", "log_y"), list(itertools.product([False, True], repeat=2)))
def test_axes_are_logarithmic_on_request(log_x, log_y):
    (axes,) = draw(plot("lines", line("a", "Linear"), log_x=log_x, log_y=log_y)).axes
    assert (axes.get_xscale() == "log", axes.get_yscale() == "log") == (log_x, log_y)


def test_lines_go_through_their_points_with_a_band_around():
    figure = draw(plot("lines", line("a", "Linear", low=[0.5, 1.5, 3.0], high=[1.5, 2.5, 5.0]), line("b", "H")))
    (axes,) = figure.axes
    first, second = axes.lines
    assert first.get_xydata().tolist() == [[1, 1], [2, 2], [3, 4]]
    assert len(axes.collections) == 1  # a band for the first line alone
    assert [first.get_label(), second.get_label()] == ["a", "b"]


def test_a_model_has_the_same_colour_in_two_plots_and_variants_differ_by_dashes():
    colors = {"Linear": "#009E73"}
    together = draw(plot("lines", line("a", "Linear"), line("b", "Linear", variant="−NS"), colors=colors))
    alone = draw(plot("lines", line("x", "3-layer MLP"), line("y", "Linear"), colors=colors))
    a, b = together.axes[0].lines
    x, y = alone.axes[0].lines
    assert to_hex(a.get_color()) == to_hex(b.get_color()) == to_hex(y.get_color()) != to_hex(x.get_color())
    assert a.get_linestyle() != b.get_linestyle()
    assert a.get_linestyle() == y.get_linestyle() == "-"


def test_models_without_a_colour_of_their_own_get_distinct_ones_that_are_free():
    models = ["3-layer MLP + CN", "3-layer MLP", "Linear", "2-layer MLP", "MLP classifier"]
    figure = draw(plot("lines", *(line(model, model) for model in models), colors={"Linear": "#E69F00"}))
    drawn = [to_hex(drawn.get_color()).upper() for drawn in figure.axes[0].lines]
    assert len(set(drawn)) == 5 and drawn[2] == "#E69F00"


def test_a_plot_whose_own_colours_are_all_that_there_are_draws():
    colors = {str(i): color for i, color in enumerate((*COLORS, "#7F4F24", "#808080"))}
    assert png(draw(plot("lines", *(line(m, m) for m in (*colors, "other")), colors=colors))).startswith(PNG)


def test_horizontal_lines_are_in_the_legend():
    figure = draw(plot("lines", line("a", "Linear"), lines_at={"unit variance": 1.0}))
    level = figure.axes[0].lines[-1]
    assert list(level.get_ydata()) == [1.0, 1.0]
    texts = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert texts == ["a", "unit variance"]


@pytest.mark.parametrize("count", [1, 3])
def test_there_is_a_box_per_dataset(count):
    figure = draw(plot("boxes", *(Series(f"data {i}", "", [], [1.0, 2.0, 9.0]) for i in range(count)), log_y=True))
    (axes,) = figure.axes
    assert len(axes.patches) == count
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"data {i}" for i in range(count)]
    assert png(figure).startswith(PNG)


def test_the_theoretical_value_is_marked_beside_the_box():
    (axes,) = draw(plot("boxes", Series("a", "", [], [1.0, 2.0]), Series("b", "", [1.5], [1.0, 2.0]))).axes
    marks = [drawn for drawn in axes.lines if drawn.get_label() == "expected by theory"]
    assert [drawn.get_xydata().tolist() for drawn in marks] == [[[1.0, 1.5]]]


def test_a_histogram_stands_beside_the_normal_distribution():
    (axes,) = draw(plot("histogram", Series("a", "", [-1.0, 0.0, 1.0], [0.2, 0.5, 0.3]))).axes
    (normal,) = axes.lines
    assert normal.get_label() == "normal distribution"
    assert max(normal.get_ydata()) == pytest.approx(0.399, abs=0.002)
    values, edges, _ = axes.patches[0].get_data()
    assert values.tolist() == [0.2, 0.5, 0.3]
    assert edges.tolist() == [-1.5, -0.5, 0.5, 1.5]


def test_a_long_title_is_broken_and_drawing_twice_gives_the_same_picture():
    long = Plot("n", "lines", "a rather long title " * 8, "", "", [line("a", "Linear")])
    assert "\n" in draw(long).axes[0].get_title()
    assert png(draw(long)) == png(draw(long))


def test_bars_stand_on_one_another():
    stages = [Series("a", "gather", [0.0, 1.0], [1.0, 2.0]), Series("b", "backward", [0.0, 1.0], [3.0, 4.0])]
    (axes,) = draw(plot("bars", *stages, ticks=["one", "two"])).axes
    lower, upper = axes.containers
    assert [bar.get_y() for bar in upper] == [bar.get_height() for bar in lower] == [1.0, 2.0]
    assert [bar.get_height() for bar in upper] == [3.0, 4.0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["one", "two"]
    assert lower[0].get_facecolor() != upper[0].get_facecolor()


def test_a_logarithmic_axis_of_steps_has_powers_of_ten():
    line = Series("a", "", [1, 2, 11, 301], [1.0, 2.0, 3.0, 4.0])
    [axes] = draw(Plot("p", "lines", "title", "iteration", "y", [line], log_x=True)).axes
    low, high = axes.get_xlim()
    assert [axes.xaxis.get_major_formatter()(tick) for tick in axes.get_xticks() if low <= tick <= high] == [
        "1",
        "10",
        "100",
    ]


def test_labels_of_many_points_do_not_overlap():
    series = [Series(f"method {i}", "DEM", [10.0 + i % 3], [50.0 + i % 4]) for i in range(28)]
    (axes,) = draw(plot("points", *series, log_x=True)).axes
    png(axes.figure)  # applies the layout
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the lines to their points
    heights, letters = sorted(box.y0 for box in boxes), min(box.height for box in boxes)
    assert len(heights) == 28 and min(b - a for a, b in zip(heights, heights[1:], strict=False)) > 0.8 * letters
