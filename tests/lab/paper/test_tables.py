"""Tables of the paper on small data: training, cells, verdicts, data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from classnorm.data import Split, SyntheticConfig, load, save_bundle, synthetic
from classnorm.results.artifact import ranks
from classnorm_lab.paper.datasets import PaperDataset, find_datasets
from classnorm_lab.paper.measured import SCORINGS
from classnorm_lab.paper.tables import TABLES, TableSpec, contradictions
from classnorm_lab.paper.variants import CN, STANDARDIZED, THREE_LAYERS
from classnorm_lab.paper.verdicts import Claim

SMALL = {"seeds": 2, "changes": {"hidden": 16, "epochs": 2, "lr": 3e-3}}
MAIN = replace(TABLES["main"], variants=TABLES["main"].variants[:6])  # without the other methods
COLUMNS = ("unseen", "seen", "harmonic")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    data = synthetic(SyntheticConfig(classes=24, unseen=6, rows=720, features=16, attributes=12, noise=0.5))
    save_bundle(replace(data, name="tiny"), path)
    return path


@pytest.fixture(scope="module")
def paper_dataset(bundle):
    (paper_dataset,) = find_datasets([str(bundle)], None, None)
    return paper_dataset


@pytest.fixture(scope="module")
def reproduction(reproduce, paper_dataset, tmp_path_factory):
    return reproduce(tmp_path_factory.mktemp("out"), paper_dataset, find_datasets(["CUB"], None, None)[0], **SMALL)


@pytest.fixture(scope="module")
def main(reproduction):
    return made(MAIN, reproduction)


def made(spec, reproduction):
    return spec.present(spec.measure(reproduction))


def results(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/result.json"))]


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*")}


def test_the_numbers_are_means_over_the_run_folders(reproduction, main):
    table = main.tables[2]
    assert [row[0].text for row in table.body] == [variant.label for variant in MAIN.variants]
    for row in table.body:
        runs = [document for document in results(reproduction.folder) if document["recipe"] == row[0].text]
        assert sorted(run["seed"] for run in runs) == [0, 1]
        values = {name: [run["scores"][name] for run in runs] for name in runs[0]["scores"]}
        shown = {
            name: row[column].text for name, column in zip((*COLUMNS, "zsl", "ausuc"), (1, 2, 3, 7, 8), strict=True)
        }
        for name, text in shown.items():
            center, spread = map(float, text.split(" ± "))
            assert center == pytest.approx(np.mean(values[name]), abs=0.051)
            assert spread == pytest.approx(np.std(values[name], ddof=1), abs=0.051)
        assert row[10].text == "2"


def test_the_overview_has_the_h_of_every_dataset(main):
    calibrated, released, detail = main.tables[:3]
    assert [row[1] for row in calibrated.body] == [row[3] for row in detail.body]
    assert [row[1] for row in released.body] == [row[6] for row in detail.body]


def test_the_header_names_the_features(main):
    assert main.tables[0].header == ["measured here", "tiny (simulated)", "CUB"]
    assert main.tables[2].title.startswith("tiny (simulated): ")
    assert len(main.tables) == 4


def test_a_missing_dataset_has_a_dash_and_a_note(main):
    assert {row[-1].text for row in main.tables[0].body} == {"–"}
    assert "CUB: not measured, its features are missing." in main.notes
    assert all(verdict.dataset == "tiny (simulated)" for verdict in main.verdicts)


def test_the_published_figures_have_a_table(main):
    body = {row[0].text: [cell.text for cell in row[1:]] for row in main.tables[-1].body}
    assert body["3-layer MLP + CN"][:3] == ["44.7", "41.6", "43.1"]
    assert body["EPGN"][:3] == ["–", "–", "–"]
    assert "ResNet-101" in main.tables[-1].title


def test_the_best_and_second_best_are_ranked(main):
    cells = [row[3] for row in main.tables[2].body]
    means = [float(cell.text.split()[0]) for cell in cells]
    assert [cell.rank for cell in cells] == ranks(means)
    assert cells[int(np.argmax(means))].rank == 1


def test_every_claim_is_judged_with_its_numbers(main):
    claims = [f"{c.text} (by {c.margin:g} H)" for c in MAIN.claims for _ in SCORINGS]
    assert [verdict.claim for verdict in main.verdicts] == claims
    for verdict, column in zip(main.verdicts[:2], (3, 6), strict=True):
        means = {row[0].text: row[column].text.split()[0] for row in main.tables[2].body}
        assert verdict.measured.startswith(f"H {means['3-layer MLP + CN']} against {means['3-layer MLP']}: ")
        assert verdict.measured.endswith("n = 2")
    assert [verdict.scoring for verdict in main.verdicts[:2]] == list(SCORINGS.values())


def test_the_data_of_an_artifact_holds_every_seed_and_is_json(main):
    document = json.loads(json.dumps(main.data, allow_nan=False))
    assert len(document["runs"]) == len(MAIN.variants)
    assert all(len(entry["numbers"]["harmonic"]) == 2 and entry["diverged"] == 0 for entry in document["runs"])
    assert MAIN.present(document) == main


def test_a_second_call_trains_nothing(reproduction, main):
    before = times(reproduction.folder)
    again = made(MAIN, reproduction)
    assert times(reproduction.folder) == before
    assert again == main


def test_variants_that_two_tables_share_are_trained_once(reproduction, main):
    before = times(reproduction.folder)
    spec = TABLES["ns-an-cn"]
    own = tuple(variant for variant in spec.variants if variant.method == "classnorm")
    artifact = made(replace(spec, variants=own), reproduction)
    after = times(reproduction.folder)
    assert {path: after[path] for path in before} == before
    # of seven rows, four are the 3-layer MLP and CN of the main table, with and without the final ReLU
    assert len({path.parent for path in after} - {path.parent for path in before}) == 3 * 2
    shown = {row[0].text: [cell.text for cell in row[1:]] for row in artifact.tables[2].body}
    known = {row[0].text: [cell.text for cell in row[1:]] for row in main.tables[2].body}
    assert shown["Vanilla MLP +NS+AN"] == known["3-layer MLP"]
    assert shown["Vanilla MLP +NS +AN +CN"] == known["3-layer MLP + CN"]


def test_a_dataset_of_the_paper_has_a_column_with_the_published_h(reproduce, paper_dataset, tmp_path):
    spec = TableSpec("main", "", "", (CN,), ())
    named = PaperDataset("CUB", "CUB", "hog", loaded=paper_dataset.dataset)
    table = made(spec, reproduce(tmp_path, named, **SMALL | {"seeds": 1})).tables[0]
    assert table.header[-1] == "paper: CUB (ResNet-101)"
    assert table.body[0][-1].text == "50.3"


WILD = THREE_LAYERS.derive("wild", logits="dot", lr=1e30)


def test_a_diverged_variant_is_marked_and_scores_zero_in_claims(reproduce, paper_dataset, tmp_path):
    claims = (Claim("tame beats wild", THREE_LAYERS, WILD), Claim("wild beats tame", WILD, THREE_LAYERS))
    spec = TableSpec("main", "", "", (THREE_LAYERS, WILD), claims)
    artifact = made(spec, reproduce(tmp_path, paper_dataset, **SMALL))
    tame, wild = artifact.tables[2].body
    assert [cell.text for cell in wild[1:-1]] == ["diverged"] * 8 + ["–"]
    assert "diverged" not in [cell.text for cell in tame]
    assert artifact.verdicts[0].verdict.startswith("holds")
    assert [verdict.verdict for verdict in artifact.verdicts[2:]] == ["does not hold"] * 2
    assert " against 0.0: +" in artifact.verdicts[0].measured
    entry = artifact.data["runs"][1]
    assert (entry["row"], entry["diverged"], entry["numbers"]["harmonic"]) == ("wild", 2, [0.0, 0.0])


def test_data_without_unseen_rows_has_dashes_and_no_verdict(reproduce, bundle, tmp_path):
    data = load(bundle)
    split = Split(data.split.train, data.split.test_seen, data.split.test_unseen[:0])
    paper_dataset = PaperDataset("seen only", "", "own", loaded=replace(data, split=split))
    spec = TableSpec("main", "", "", (CN, THREE_LAYERS), (Claim("CN helps", CN, THREE_LAYERS),))
    artifact = made(spec, reproduce(tmp_path, paper_dataset, **SMALL | {"seeds": 1}))
    row = artifact.tables[2].body[0]
    assert (row[1].text, row[3].text, row[3].rank) == ("–", "–", None)
    assert float(row[2].text) >= 0
    assert artifact.verdicts[0].verdict == "not measured"
    json.dumps(artifact.data, allow_nan=False)


def test_the_paper_gives_two_different_linear_models_the_same_figures():
    notes = contradictions(TABLES["additional"])
    assert any("“Linear +NS+AN γ = 5” here the same figures as “Linear -AN” in table tricks" in text for text in notes)
    assert any(
        "“Linear +NS+AN γ = 5”: table additional and table tricks differ (SUN U 13.8 and 41.0" in t for t in notes
    )


def test_the_paper_gives_the_plain_3_layer_mlp_different_figures():
    notes = contradictions(TABLES["main"])
    for table, cell in (("additional", "CUB S 48.4 and 50.7"), ("attribute-assumptions", "AWA1 U 57.0 and 55.6")):
        assert any(f"“3-layer MLP”: table main and table {table} differ ({cell}" in text for text in notes)
    assert not any("+ CN" in text for text in notes)


def test_a_row_that_agrees_with_the_other_tables_is_no_contradiction():
    notes = [text for spec in TABLES.values() if spec.of_the_paper for text in contradictions(spec)]
    assert not any("2-layer MLP +NS+AN γ = 5" in text for text in notes)


def test_a_row_that_was_not_measured_yet_is_a_dash_and_a_note(reproduce, tiny, tmp_path):
    spec = replace(TABLES["main"], variants=(THREE_LAYERS, CN), claims=())
    data = spec.measure(reproduce(tmp_path, tiny, seeds=1))
    claim = Claim("CN helps", CN, STANDARDIZED)
    longer = replace(spec, variants=(*spec.variants, STANDARDIZED), claims=(claim,))
    artifact = longer.present(data)
    assert [row[1].text for row in artifact.tables[0].body][-1] == "–"
    assert [row[0].text for row in artifact.tables[2].body] == [THREE_LAYERS.label, CN.label]
    assert f"Not measured yet in all settings: {STANDARDIZED.label}." in artifact.notes
    assert artifact.verdicts == []
