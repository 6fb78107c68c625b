"""The leaderboard on small data."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from classnorm import fit
from classnorm.methods import METHODS
from classnorm.metrics import gzsl_scores
from classnorm.results.run_folder import find_results
from classnorm_lab.paper import leaderboard
from classnorm_lab.paper.measured import Measured
from classnorm_lab.paper.page import Numbers, known_runs, write_numbers

pytestmark = pytest.mark.slow


@pytest.fixture
def reproduction(reproduce, tiny, tmp_path):
    return reproduce(tmp_path, tiny, seeds=2, search_trials=2, search_seconds=0.0)


@pytest.fixture
def few(monkeypatch):
    """Only the quick methods."""
    quick = [e for e in leaderboard.ENTRIES if e.method in ("classnorm", "eszsl", "sae") and e.recipe != "best"]
    monkeypatch.setattr(leaderboard, "entries", lambda: quick)


def test_every_method_is_on_the_leaderboard():
    assert {entry.method for entry in leaderboard.ENTRIES} == set(METHODS)
    assert all(entry.recipe in METHODS[entry.method].recipes for entry in leaderboard.ENTRIES)


def test_the_notes_name_the_methods_shown_that_use_descriptors_of_unseen_classes(reproduction, few, monkeypatch):
    monkeypatch.setitem(METHODS, "sae", replace(METHODS["sae"], sees_unseen=True))
    notes = leaderboard.leaderboard(leaderboard.measure_leaderboard(reproduction)).notes
    assert [note for note in notes if "descriptors of the unseen classes" in note] == [
        "Trained with the descriptors of the unseen classes, so that they know which will come: SAE."
    ]


def test_a_plug_in_method_is_on_the_leaderboard(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["eszsl"])
    assert leaderboard.entries()[-1] == leaderboard.Entry("mine", "mine")


def test_the_leaderboard_is_sorted_by_h_and_shows_the_runs(reproduction, few):
    artifact = leaderboard.leaderboard(leaderboard.measure_leaderboard(reproduction))
    [table] = artifact.tables
    shown = [float(row[3].text.split(" ±")[0]) for row in table.body]
    assert shown == sorted(shown, reverse=True)
    results = find_results([reproduction.folder / "runs"])
    assert len(results) == 5 * 2
    for row in table.body:
        values = [r.scores["harmonic"] for r in results if r.document["recipe"] == row[0].text]
        assert float(row[3].text.split(" ±")[0]) == pytest.approx(np.mean(values), abs=0.051)
        assert row[-1].text == "2"


def test_every_method_has_the_same_number_of_trials(reproduction, few):
    leaderboard.measure_leaderboard(reproduction)
    searches = list((reproduction.folder / "leaderboard" / "searches").glob("*.json"))
    assert {path.stem for path in searches} == {f"tiny-{entry.label}" for entry in leaderboard.entries()}
    assert {len(json.loads(path.read_text())["trials"]) for path in searches} == {2}


def test_no_trial_starts_after_the_time_is_over(reproduce, tiny, tmp_path, few):
    reproduction = reproduce(tmp_path, tiny, seeds=1, search_trials=50, search_seconds=1e-6)
    data = leaderboard.measure_leaderboard(reproduction)
    assert {run["numbers"]["trials"][0] for run in data["runs"]} == {1.0}
    assert "1e-06 CPU seconds" in leaderboard.leaderboard(data).notes[0]


def test_known_rows_are_neither_searched_nor_trained_again(reproduction, few, tmp_path):
    first = leaderboard.measure_leaderboard(reproduction)
    known = {run.key: run for run in Measured.of(first).runs.values()}
    elsewhere = replace(reproduction, folder=tmp_path / "elsewhere", known=known)
    assert leaderboard.measure_leaderboard(elsewhere) == first
    assert not (tmp_path / "elsewhere").exists()


def test_further_seeds_are_run_with_the_settings_of_the_first_search(reproduction, few, tmp_path):
    first = Measured.of(leaderboard.measure_leaderboard(reproduction)).runs
    known = {run.key: run for run in first.values()}
    more = replace(
        reproduction,
        folder=tmp_path / "more",
        known=known,
        effort=replace(reproduction.effort, seeds=reproduction.effort.seeds + 1),
    )
    longer = Measured.of(leaderboard.measure_leaderboard(more)).runs
    assert not (tmp_path / "more" / "leaderboard").exists(), "nothing is searched again"
    for row, runs in longer.items():
        n = first[row].n
        assert runs.n == n + 1 and runs.key == first[row].key
        assert runs.numbers["harmonic"][:n] == first[row].numbers["harmonic"]
    from_scratch = replace(more, folder=tmp_path / "scratch", known={})
    for row, runs in Measured.of(leaderboard.measure_leaderboard(from_scratch)).runs.items():
        assert runs.numbers["harmonic"] == pytest.approx(longer[row].numbers["harmonic"], abs=1e-3)
    shorter = replace(reproduction, folder=tmp_path / "shorter", known={run.key: run for run in longer.values()})
    assert Measured.of(leaderboard.measure_leaderboard(shorter)).runs == first


def test_no_row_is_started_after_the_time_is_up(reproduction, few, tmp_path):
    late = replace(reproduction, folder=tmp_path / "late", until=time.monotonic() - 1)
    assert leaderboard.measure_leaderboard(late)["runs"] == []
    assert not (tmp_path / "late").exists()


def test_the_published_order_is_compared_pair_by_pair():
    facts = {"cpu_seconds": [1.0], "parameters": [1e6], "add_class_ms": [1.0], "trials": [2.0]}
    scores = {name: [50.0] for name in ("unseen", "seen", "zsl", "ausuc")}
    here = {"DCN": 30.0, "f-CLSWGAN": 40.0, "LsrGAN": 39.0}  # published on CUB: 38.7, 49.7, 53.0
    runs = [
        {"row": row, "setting": "CUB", "key": "", "diverged": 0, "numbers": {**scores, **facts, "harmonic": [h]}}
        for row, h in here.items()
    ]
    setting = {"name": "CUB", "label": "CUB (hog)", "paper": "CUB", "missing": ""}
    _, table = leaderboard.leaderboard({"settings": [setting], "runs": runs, "trials": 2, "seconds": 0.0}).tables
    assert table.title == "CUB (hog): the published order holds for 2 of 3 pairs of systems"
    assert [row[0].text for row in table.body] == ["LsrGAN", "f-CLSWGAN", "DCN"]


def test_the_first_trial_is_the_recipe(reproduction, few):
    leaderboard.measure_leaderboard(reproduction)
    search = json.loads((reproduction.folder / "leaderboard" / "searches" / "tiny-ESZSL.json").read_text())
    recipe = METHODS["eszsl"].recipes["reference"](reproduction.datasets[0].dataset)
    first = search["trials"][0]["settings"]
    assert first == pytest.approx({name: getattr(recipe, name) for name in first})


def test_a_second_leaderboard_trains_nothing(reproduction, few):
    first = leaderboard.measure_leaderboard(reproduction)
    stamps = {path: path.stat().st_mtime_ns for path in reproduction.folder.rglob("result.json")}
    for run, before in zip(leaderboard.measure_leaderboard(reproduction)["runs"], first["runs"], strict=True):
        before["numbers"]["add_class_ms"] = run["numbers"]["add_class_ms"]  # it is timed again
        assert run == before
    assert {path: path.stat().st_mtime_ns for path in reproduction.folder.rglob("result.json")} == stamps


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(leaderboard, "entries", lambda: [e for e in leaderboard.ENTRIES if e.method == "kernel"])


def test_transductive_rows_are_apart_and_from_the_model_of_the_recipe(reproduction, kernel, tiny):
    measured = leaderboard.measure_leaderboard(reproduction)
    inductive, transductive = leaderboard.leaderboard(measured).tables
    assert "transductive" in transductive.title and "transductive" not in inductive.title
    [others], [row] = measured["runs"], measured["transductive"]
    assert others["key"] != row["key"]
    data = tiny.dataset
    features, labels = data.features[data.test_rows], data.labels[data.test_rows]
    for seed in (0, 1):
        before = fit(data, "kernel", seed=seed)
        after = before.adapt(features) if row["numbers"]["adapted"][seed] else before
        for name, scorer in (("before zsl", before), ("zsl", after)):
            expected = gzsl_scores(scorer.scores(features), labels, data.seen).zsl
            assert row["numbers"][name][seed] == pytest.approx(expected, abs=1.0)  # one row is about 1 %


def test_known_transductive_rows_are_not_measured_again(reproduction, kernel, tmp_path):
    first = leaderboard.measure_leaderboard(reproduction)
    write_numbers(tmp_path, Numbers("leaderboard", "", first))
    elsewhere = replace(reproduction, folder=tmp_path / "elsewhere", known=known_runs(tmp_path))
    again = leaderboard.measure_leaderboard(elsewhere)
    assert [run["key"] for run in again["transductive"]] == [run["key"] for run in first["transductive"]]
    assert not (tmp_path / "elsewhere").exists()


def test_numbers_of_earlier_versions_have_no_transductive_table(reproduction, kernel):
    measured = leaderboard.measure_leaderboard(reproduction)
    del measured["transductive"]
    assert not any("transductive" in table.title for table in leaderboard.leaderboard(measured).tables)


def test_a_method_whose_final_training_diverges_is_a_row_without_scores(reproduction, few, monkeypatch):
    search = leaderboard._search

    def wild(reproduction, paper_dataset, entry, *settings):
        trials, config = search(reproduction, paper_dataset, entry, *settings)
        return trials, config.replace(lr=1e30, grad_clip=0.0) if entry.label == "3-layer MLP" else config

    monkeypatch.setattr(leaderboard, "_search", wild)
    measured = json.loads(json.dumps(leaderboard.measure_leaderboard(reproduction), allow_nan=False))
    artifact = leaderboard.leaderboard(measured)
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in artifact.tables[0].body}
    assert rows["3-layer MLP"][:5] == ["diverged"] * 5 and list(rows)[-1] == "3-layer MLP"
    assert "diverged" not in rows["ESZSL"]
    assert "3-layer MLP" not in {series.label for series in artifact.plots[0].series}
