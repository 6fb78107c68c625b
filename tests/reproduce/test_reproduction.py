"""Tables of the paper, run on small data: what is trained, what is printed, what is kept."""

import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from classnorm.data import Split, SyntheticConfig, load, save_bundle, synthetic
from classnorm.errors import ClassNormError
from classnorm.experiments.engine import Engine
from classnorm.reproduce.benchmarks import Column, find_columns
from classnorm.reproduce.catalog import CATALOG
from classnorm.reproduce.claims import Claim
from classnorm.reproduce.reproduction import Effort, Workshop, table_artifact
from classnorm.reproduce.table_specs import TABLES, TableSpec
from classnorm.reproduce.variants import CN, THREE_LAYERS
from classnorm.results.artifact import ranks

SMALL = {"hidden": 16, "epochs": 2, "lr": 3e-3, "calibration": "none"}
MAIN = TABLES["main"]


def workshop(folder, *columns, **effort):
    return Workshop(
        columns, Effort(**({"seeds": 2, "changes": SMALL} | effort)), Engine(jobs=1), folder, lambda what: nullcontext()
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    data = synthetic(SyntheticConfig(classes=24, unseen=6, rows=720, features=16, attributes=12, noise=0.5))
    save_bundle(replace(data, name="tiny"), path)
    return path


@pytest.fixture(scope="module")
def column(bundle):
    (column,) = find_columns([str(bundle)], None, None)
    return column


@pytest.fixture(scope="module")
def shop(column, tmp_path_factory):
    return workshop(tmp_path_factory.mktemp("out"), column, find_columns(["CUB"], None, None)[0])


@pytest.fixture(scope="module")
def main(shop):
    return table_artifact(MAIN, shop)


def results(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/result.json"))]


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*")}


def test_the_numbers_are_means_over_the_run_folders(shop, main):
    table = main.tables[1]
    assert [row[0].text for row in table.body] == [row.label for row in MAIN.rows]
    for row in table.body:
        runs = [document for document in results(shop.folder) if document["recipe"] == row[0].text]
        assert sorted(run["seed"] for run in runs) == [0, 1]
        values = {name: [run["scores"][name] for run in runs] for name in runs[0]["scores"]}
        expected = [values[name] for name in ("unseen", "seen", "harmonic", "zsl", "ausuc")]
        assert [cell.text for cell in row[1:]] == [f"{np.mean(v):.1f} ± {np.std(v, ddof=1):.1f}" for v in expected]


def test_the_overview_has_the_h_of_every_dataset(main):
    overview, detail = main.tables[:2]
    assert [row[1] for row in overview.body] == [row[3] for row in detail.body]


def test_the_settings_of_a_row_stand_over_those_of_the_effort(shop, main):
    configs = {document["recipe"]: document["config"] for document in results(shop.folder)}
    assert {config["hidden"] for config in configs.values()} == {16}
    kinds = [(configs[row.label]["normalization"], configs[row.label]["init"]) for row in MAIN.rows]
    assert kinds == [("none", "torch"), ("class", "torch"), ("none", "proper"), ("class", "proper")]


def test_the_header_names_the_features(main):
    assert main.tables[0].header == ["measured here", "tiny (simulated)", "CUB"]
    assert main.tables[1].title.startswith("tiny (simulated): ")
    assert len(main.tables) == 3


def test_a_missing_benchmark_is_a_dash_with_a_note_how_to_get_it(main):
    assert {row[-1].text for row in main.tables[0].body} == {"–"}
    assert main.notes[0].startswith("CUB: give --data-root DIR")
    assert all(verdict.dataset == "tiny (simulated)" for verdict in main.verdicts)


def test_the_papers_figures_stand_beside(main):
    body = {row[0].text: [cell.text for cell in row[1:]] for row in main.tables[-1].body}
    assert body["3-layer MLP + CN"][:3] == ["44.7", "41.6", "43.1"]
    assert body["EPGN"][:3] == ["–", "–", "–"]
    assert "ResNet-101" in main.tables[-1].title


def test_the_best_and_second_best_are_ranked(main):
    cells = [row[3] for row in main.tables[1].body]
    means = [float(cell.text.split()[0]) for cell in cells]
    assert [cell.rank for cell in cells] == ranks(means)
    assert cells[int(np.argmax(means))].rank == 1


def test_ranks_are_shared_by_ties_and_none_for_what_was_not_measured():
    assert ranks([50.0, 60.0, 60.04, 40.0]) == [None, 1, 1, None]
    assert ranks([50.0, 60.0, 40.0]) == [2, 1, None]
    assert ranks([float("nan"), 60.0]) == [None, 1]


def test_every_claim_is_judged_with_its_numbers(shop, main):
    assert [verdict.claim for verdict in main.verdicts] == [f"{c.text} (by {c.margin:g} H)" for c in MAIN.claims]
    means = {row[0].text: row[3].text.split()[0] for row in main.tables[1].body}
    assert main.verdicts[0].measured.startswith(f"H {means['3-layer MLP + CN']} against {means['3-layer MLP']}: ")
    assert main.verdicts[0].measured.endswith("over 2 seeds")


def test_the_data_of_an_artifact_holds_every_seed_and_is_json(main):
    document = json.loads(json.dumps(main.data, allow_nan=False))
    assert len(document["measured"]) == len(MAIN.rows)
    assert all(len(entry["harmonic"]) == 2 and entry["diverged"] == 0 for entry in document["measured"])


def test_a_second_call_trains_nothing(shop, main):
    before = times(shop.folder)
    again = table_artifact(MAIN, shop)
    assert times(shop.folder) == before
    assert again == main


def test_rows_that_two_tables_share_are_trained_once(shop, main):
    before = times(shop.folder)
    artifact = table_artifact(TABLES["ns-an-cn"], shop)
    after = times(shop.folder)
    assert {path: after[path] for path in before} == before
    # of five rows, "+NS+AN" and "+CN" are the 3-layer MLP and the CN row of the main table
    assert len({path.parent for path in after} - {path.parent for path in before}) == 3 * 2
    shown = {row[0].text: [cell.text for cell in row[1:]] for row in artifact.tables[1].body}
    known = {row[0].text: [cell.text for cell in row[1:]] for row in main.tables[1].body}
    assert shown["Vanilla MLP +NS+AN"] == known["3-layer MLP"]
    assert shown["Vanilla MLP +NS +AN +CN"] == known["3-layer MLP + CN"]


def test_a_benchmark_has_a_column_with_the_papers_h(column, tmp_path):
    spec = TableSpec("main", "", "", (CN,), ())
    named = Column("CUB", "CUB", "hog", loaded=column.dataset)
    table = table_artifact(spec, workshop(tmp_path, named, seeds=1)).tables[0]
    assert table.header[-1] == "paper (ResNet-101)"
    assert table.body[0][-1].text == "50.3"


WILD = THREE_LAYERS.but("wild", logits="dot", lr=1e30)


def test_a_row_that_diverges_says_so_and_counts_as_nothing_in_claims(column, tmp_path):
    claims = (Claim("tame beats wild", THREE_LAYERS, WILD), Claim("wild beats tame", WILD, THREE_LAYERS))
    shop = workshop(tmp_path, column)
    artifact = table_artifact(TableSpec("main", "", "", (THREE_LAYERS, WILD), claims), shop)
    tame, wild = artifact.tables[1].body
    assert [cell.text for cell in wild[1:]] == ["diverged"] * 5
    assert "diverged" not in [cell.text for cell in tame]
    assert [verdict.verdict for verdict in artifact.verdicts] == ["holds", "does not hold"]
    assert " against 0.0: +" in artifact.verdicts[0].measured
    entry = artifact.data["measured"][1]
    assert (entry["row"], entry["diverged"], entry["harmonic"]) == ("wild", 2, [0.0, 0.0])


def test_a_run_that_fails_otherwise_ends_the_table_with_its_message(column, tmp_path):
    with pytest.raises(ClassNormError, match="main: a run failed: gamma is -1"):
        table_artifact(TableSpec("main", "", "", (CN.but("bad", gamma=-1.0),), ()), workshop(tmp_path, column))


def test_data_without_unseen_rows_has_dashes_and_no_verdict(bundle, tmp_path):
    data = load(bundle)
    split = Split(data.split.train, data.split.test_seen, data.split.test_unseen[:0])
    column = Column("seen only", "", "own", loaded=replace(data, split=split))
    spec = TableSpec("main", "", "", (CN, THREE_LAYERS), (Claim("CN helps", CN, THREE_LAYERS),))
    artifact = table_artifact(spec, workshop(tmp_path, column, seeds=1))
    row = artifact.tables[1].body[0]
    assert (row[1].text, row[3].text, row[3].rank) == ("–", "–", None)
    assert float(row[2].text) >= 0
    assert artifact.verdicts[0].verdict == "not measured"
    json.dumps(artifact.data, allow_nan=False)


def test_training_times_are_those_of_the_runs(shop, main):
    artifact = CATALOG["training-time"].make(shop)
    seconds = [d["train_seconds"] for d in results(shop.folder / "training-time")]
    assert len(seconds) == 2  # trained again, one at a time: the others shared the machine
    row = [cell.text for cell in artifact.tables[0].body[0]]
    assert row[:3] == ["tiny (simulated)", f"{np.mean(seconds):.1f}", f"{np.max(seconds):.1f}"]
    assert [cell.text for cell in artifact.tables[0].body[1]] == ["CUB", "–", "–", "–"]
    assert [verdict.verdict for verdict in artifact.verdicts] == ["holds"]


def test_hyperparameters_are_those_of_the_recipes(shop):
    artifact = CATALOG["hyperparameters"].make(shop)
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in artifact.tables[1].body}
    assert rows["tiny, paper"] == ["2", "128", "0.002", "50", "0.001", "512", "5"]  # few classes: as AwA2
    assert rows["tiny, reference"][0] == "2"
