"""Streams in a report: grouped by strategy, told apart by their tasks, with the numbers that the runs wrote."""

import csv
import io
import json
import re

import numpy as np
import pytest

from classnorm.cli import main
from classnorm.report import group_results, markdown_document, write_report
from classnorm.report.draw import draw
from classnorm.report.stream_results import mean_matrix, step_table, stream_plots
from classnorm.report.tables import results_table
from classnorm.results.run_folder import find_results

MATRIX = [[60.0, 20.0, 10.0], [40.0, 70.0, 30.0], [20.0, 50.0, 80.0]]


def scores(value, forgetting):
    return {"mSA": value, "mUA": value, "mH": value, "mAUC": value, "mJA": value, "forgetting": forgetting}


@pytest.fixture(scope="module")
def runs(write_stream, tmp_path_factory):
    """Two seeds of a strategy with CN, one without, one of another strategy."""
    folder = tmp_path_factory.mktemp("runs")
    other = (np.array(MATRIX) + 10).tolist()
    write_stream(folder / "a0", MATRIX, scores=scores(40.0, 0.10))
    write_stream(folder / "a1", other, seed=1, scores=scores(44.0, 0.20))
    write_stream(folder / "b", MATRIX, class_norm=False, scores=scores(30.0, 0.30))
    write_stream(folder / "c", MATRIX, strategy="analytic", config={"ridge": 0.1}, scores=scores(50.0, -0.05))
    return folder


@pytest.fixture(scope="module")
def groups(runs):
    return group_results(find_results([runs]))


def names(folder):
    return [(group.dataset, group.label, len(group.results)) for group in group_results(find_results([folder]))]


def test_a_row_is_a_strategy_with_its_seeds(groups):
    assert [(g.dataset, g.label, len(g.results)) for g in groups] == [
        ("toy, 3 tasks", "ewc + CN", 2),
        ("toy, 3 tasks", "ewc", 1),
        ("toy, 3 tasks", "analytic", 1),
    ]


def test_the_table_has_means_and_marks_the_least_forgetting_as_best(groups):
    table = results_table(groups)
    assert table.header == ["strategy", "seeds", "mSA", "mUA", "mH", "mAUC", "mJA", "forgetting", "seconds"]
    first, second, third = table.body
    assert [cell.text for cell in first[:3]] == ["ewc + CN", "2", "42.0 ± 2.8"]
    assert [row[4].rank for row in (first, second, third)] == [2, None, 1]
    assert [(row[7].text, row[7].rank) for row in (first, second, third)] == [
        ("0.15 ± 0.07", 2),
        ("0.30", None),
        ("-0.05", 1),
    ]


def test_settings_in_which_runs_differ_are_in_the_label(write_stream, tmp_path):
    for rate in (0.1, 0.5):
        write_stream(tmp_path / str(rate), MATRIX, config={"class_norm": True, "lr": rate})
    assert [label for _, label, _ in names(tmp_path)] == ["ewc + CN, lr 0.1", "ewc + CN, lr 0.5"]


def test_settings_that_each_seed_chose_for_itself_do_not_part_the_seeds(write_stream, tmp_path):
    for seed, by in ((0, "mAUC"), (1, "mAUC"), (0, "mH")):
        config = {"class_norm": True, "lr": 0.1 * (seed + 1)}
        chosen = {"by": by, "settings": ["lr"]}
        write_stream(tmp_path / f"{by}{seed}", MATRIX, seed=seed, config=config, chosen=chosen, part=(3, None))
    title = "toy, tasks 4 to 6"
    assert names(tmp_path) == [
        (title, "ewc + CN, lr chosen by mAUC", 2),
        (title, "ewc + CN, lr chosen by mH", 1),
    ]


def test_different_streams_have_separate_sections(write_stream, tmp_path):
    stream = {"tasks": [2, 2, 2], "checksum": "", "part": [0, None]}
    write_stream(tmp_path / "a", MATRIX)
    write_stream(tmp_path / "b", MATRIX, stream=stream | {"image_split": "official"})
    write_stream(tmp_path / "c", MATRIX, encoder="convnet", image_size=24)
    write_stream(tmp_path / "d", MATRIX, dataset="other")
    write_stream(tmp_path / "e", [row[:2] for row in MATRIX[:2]])
    assert [dataset for dataset, _, _ in names(tmp_path)] == [
        "toy, 3 tasks, stratified image split, from features",
        "toy, 3 tasks, official image split, from features",
        "toy, 3 tasks, stratified image split, from convnet at 24 px",
        "other, 3 tasks",
        "toy, 2 tasks",
    ]


def test_curves_are_means_over_seeds_with_their_range(groups):
    plots = {plot.name: plot for plot in stream_plots(groups)}
    seen, _, _ = plots["stream-seen"].series
    assert (seen.x, seen.y) == ([1, 2, 3], [10.5, 20.5, 30.5])
    assert (seen.low, seen.high) == ([10, 20, 30], [11, 21, 31])
    assert plots["stream-seen"].series[1].low is None  # a single seed
    assert plots["stream-unseen"].series[0].x == [1, 2]  # after the last task nothing is unseen
    assert plots["stream-forgetting"].series[0].x == [2, 3]


def test_the_matrix_is_the_mean_over_seeds_and_its_values_are_written_in_the_cells(groups):
    assert mean_matrix(groups[0]).tolist() == (np.array(MATRIX) + 5).tolist()
    heat = [plot for plot in stream_plots(groups) if plot.kind == "heatmap"]
    assert [plot.title for plot in heat] == ["ewc + CN", "ewc", "analytic"]
    assert {tuple(plot.limits) for plot in heat} == {(0.0, 85.0)}  # one scale of colours
    axes = draw(heat[0]).axes[0]
    assert [text.get_text() for text in axes.texts] == ["65", "25", "15", "45", "75", "35", "25", "55", "85"]


def test_the_numbers_behind_the_curves(groups):
    table = step_table(groups[0])
    assert table.header == ["", "S", "U", "H", "AUSUC", "joint", "forgetting"]
    assert [cell.text for cell in table.body[0]][:3] == ["after task 1", "10.5 ± 0.7", "5.5 ± 0.7"]
    assert [cell.text for cell in table.body[-1]][2:] == ["–", "–", "–", "30.5 ± 0.7", "0.20 ± 0.00"]


def test_a_stream_too_short_for_a_score_has_no_curve_of_it(write_stream, tmp_path):
    write_stream(tmp_path / "run", [[50.0]], scores=scores(None, None) | {"mSA": 50.0, "mJA": 50.0})
    groups = group_results(find_results([tmp_path]))
    assert [plot.name for plot in stream_plots(groups)] == ["stream-seen", "stream-joint", "stream-matrix-1"]
    assert "| – |" in markdown_document(groups, {})


@pytest.mark.slow
def test_runs_and_streams_share_one_page(runs, write_run, tmp_path):
    write_run(tmp_path / "run")
    groups = group_results(find_results([tmp_path / "run", runs]))
    written = {path.name for path in write_report(groups, tmp_path / "out", "both")}
    assert {"curve.png", "stream-seen-toy-3-tasks.png", "results.csv", "streams.csv"} <= written
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert re.findall("<h2>(.*?)</h2>", page) == ["toy", "toy, 3 tasks", "What the scores mean"]
    assert "<dt>AUSUC</dt>" in page and "<dt>mAUC</dt>" in page
    for name in ("results.md", "results.tex"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert "AUSUC" in text and "mAUC" in text and "ewc + CN" in text
    for fact in (
        "classnorm continual toy --strategy analytic",
        "toy hog",
        "ridge 0.1",
        "order 0; order 1",
        "torch 2.99",
    ):
        assert fact in page


@pytest.mark.slow
def test_strategies_with_other_seeds_are_noted_to_run_on_different_orders(groups, tmp_path):
    write_report(groups, tmp_path, "")
    assert "different orders of the classes" in (tmp_path / "index.html").read_text(encoding="utf-8")
    write_report(groups[1:], tmp_path, "")
    assert "different orders of the classes" not in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command_gives_streams_as_json_and_csv(runs, tmp_path, capsys):
    main(["report", str(runs), "--out", str(tmp_path), "--json"])
    document = json.loads(capsys.readouterr().out)
    first = document["streams"][0]
    assert (document["groups"], first["mean"]["mH"], first["std"]["mH"]) == ([], 42.0, pytest.approx(8**0.5))
    assert first["per_task"][-1]["unseen"] is None and first["per_task"][0]["seen"] == 10.5
    assert first["matrix"][0] == [65.0, 25.0, 15.0]
    main(["report", str(runs), "--out", str(tmp_path), "--format", "csv", "--quiet"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["strategy"] for row in rows] == ["ewc", "ewc", "analytic"]
    assert [row["forgetting_mean"] for row in rows] == ["0.1500", "0.3000", "-0.0500"]


def test_the_command_prints_a_table_of_strategies(runs, tmp_path, capsys):
    main(["report", str(runs), "--out", str(tmp_path), "--quiet"])
    out = capsys.readouterr().out
    assert "toy, 3 tasks" in out and "42.0 ± 2.8 +" in out and "-0.05 *" in out


def test_streams_alone_have_nothing_to_be_compared_against(runs, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["report", str(runs), "--out", str(tmp_path), "--against", "ewc"])
    assert "--against" in capsys.readouterr().err
