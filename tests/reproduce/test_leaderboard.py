"""The leaderboard and the continual table on data so small that all of it runs in seconds."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, synthetic
from classnorm.experiments.engine import Engine
from classnorm.methods import METHODS
from classnorm.reproduce import czsl, leaderboard
from classnorm.reproduce.benchmarks import Column
from classnorm.reproduce.published import published
from classnorm.reproduce.reproduction import Effort, Workshop
from classnorm.results.run_folder import find_results


@pytest.fixture(scope="module")
def column():
    data = synthetic(SyntheticConfig(classes=24, unseen=6, rows=480, features=16, attributes=12, noise=0.5))
    return Column("tiny", "tiny", "simulated", changes={"hidden": 16, "epochs": 2}, loaded=replace(data, name="tiny"))


@pytest.fixture
def workshop(column, tmp_path):
    effort = Effort(seeds=2, search_trials=2, stream_epochs=1)
    return Workshop([column], effort, Engine(jobs=1), tmp_path, lambda what: contextlib.nullcontext())


@pytest.fixture
def few(monkeypatch):
    """Only the quick methods, and two pairs of arms."""
    quick = [e for e in leaderboard.ENTRIES if e.method in ("classnorm", "eszsl", "sae") and e.recipe != "best"]
    monkeypatch.setattr(leaderboard, "ENTRIES", quick)
    monkeypatch.setattr(
        czsl, "ARMS", [arm for arm in czsl.ARMS if arm.strategy in ("sequential", "replay", "analytic")]
    )


def test_every_method_is_on_the_leaderboard():
    assert {entry.method for entry in leaderboard.ENTRIES} == set(METHODS)
    assert all(entry.recipe in METHODS[entry.method].recipes for entry in leaderboard.ENTRIES)
    assert all(entry.trials <= 8 for entry in leaderboard.ENTRIES)


def test_the_leaderboard_shows_the_runs_of_the_winners_best_first(workshop, few):
    artifact = leaderboard.leaderboard(workshop)
    [table] = artifact.tables
    shown = [float(row[3].text.split(" ±")[0]) for row in table.body]
    assert shown == sorted(shown, reverse=True)
    results = find_results([workshop.folder / "runs"])
    assert len(results) == 4 * 2
    for row in table.body:
        mine = [r.scores["harmonic"] for r in results if r.document["recipe"] == row[0].text]
        assert float(row[3].text.split(" ±")[0]) == pytest.approx(np.mean(mine), abs=0.051)
        assert row[-1].text == "2"


def test_the_first_trial_is_the_recipe_itself(workshop, few):
    leaderboard.leaderboard(workshop)
    search = json.loads((workshop.folder / "leaderboard" / "searches" / "tiny-ESZSL.json").read_text())
    recipe = METHODS["eszsl"].recipes["reference"](workshop.columns[0].dataset)
    first = search["trials"][0]["settings"]
    assert first == pytest.approx({name: getattr(recipe, name) for name in first})


def test_a_second_leaderboard_trains_nothing(workshop, few):
    first = leaderboard.leaderboard(workshop)
    stamps = {path: path.stat().st_mtime_ns for path in workshop.folder.rglob("result.json")}
    assert leaderboard.leaderboard(workshop) == first
    assert {path: path.stat().st_mtime_ns for path in workshop.folder.rglob("result.json")} == stamps


def test_the_continual_table_has_both_protocols_and_the_published_figures(workshop, few):
    artifact = czsl.czsl_table(workshop)
    tuned, at_rate, selection, paper = artifact.tables
    labels = ["Sequential", "Sequential + CN", "Replay", "Replay + CN", "Analytic (ours)"]
    assert [row[0].text for row in tuned.body] == [row[0].text for row in at_rate.body] == labels
    assert "lr 0.0" in tuned.body[0][-1].text and "bias" in tuned.body[-1][-1].text
    assert tuned.body[-1][3].text == tuned.body[-1][-2].text  # mH of the analytic strategy has the bias already
    assert [row[1].text for row in selection.body] == ["mAUC", "mH", "mJA"] * 2
    assert selection.body[0][2:8] == [replace(cell) for cell in tuned.body[0][1:7]]
    edges = [choice for row in tuned.body for choice in row[-1].text.split(";") if "edge" in choice]
    assert any("at an edge of the grid" in note for note in artifact.notes) == bool(edges)
    assert "%" in tuned.body[1][3].text and "%" not in tuned.body[0][3].text
    assert len(paper.body) == 10
    assert {verdict.verdict for verdict in artifact.verdicts} <= {"holds", "holds weakly", "does not hold"}
    assert len(artifact.verdicts) == 2 * 2  # Sequential only: the paper has no Replay


def test_the_continual_curves_end_where_nothing_is_unseen(workshop, few):
    artifact = czsl.czsl_curves(workshop)
    length = {plot.y_label: {len(series.x) for series in plot.series} for plot in artifact.plots}
    steps = 10 - 3  # tasks that are left after the validation sequence
    assert length["GZSL-S (%)"] == {steps}
    assert length["GZSL-U (%)"] == length["AUSUC (%)"] == {steps - 1}


def test_published_continual_figures():
    table = published("czsl-table")
    assert table["Sequential + ClassNorm"].cells["CUB mH"] == "23.0"
    assert table["Multi-task"].cells["SUN mJA"] == "14.9"
    assert table["MAS-online"].cells["CUB forgetting"] == "0.08"
    for arm in czsl.ARMS:
        assert not arm.published or arm.published in table
