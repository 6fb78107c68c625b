"""Artifacts: kept as JSON, shown as a section of a page and as files."""

import csv
import json
from dataclasses import replace

import pytest

from classnorm.errors import DataError
from classnorm.report.files import write_artifact
from classnorm.report.page import artifact_section
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, find_artifacts

PNG = b"\x89PNG\r\n\x1a\n"
NAMES = ("3-layer MLP + CN", "a <b>bold</b> & brash | one_two", "γ = 5, −AN")


@pytest.fixture(scope="module")
def artifact():
    body = [[Cell(name), Cell(f"{10 * i}.5 ± 0.1", rank=i or None)] for i, name in enumerate(NAMES)]
    colors = {"CN": "#009E73"}
    lines = Series("CN", "3-layer MLP + CN", [1.0, 2.0], [0.5, 0.7], [0.4, 0.6], [0.6, 0.8], "−AN")
    return Artifact(
        "main",
        "Results <on> glyphs",
        "What the paper says & shows.",
        tables=[Table("Measured <here>", ["model", "H"], body), Table.of("Paper", ["model", "H"], [["RN", "–"]])],
        plots=[
            Plot(
                "curve",
                "lines",
                "A <curve>",
                "x",
                "y",
                [lines],
                log_x=True,
                lines_at={"one": 1.0},
                colors=colors,
            ),
            Plot("boxes", "boxes", "Boxes", "", "y", [Series("d", "d", [], [1.0, 2.0, 3.0])]),
        ],
        notes=["CUB: give --data-root <DIR>"],
        data={"numbers": [1, 2.5, None]},
    )


def test_a_loaded_artifact_equals_the_saved_one(artifact, tmp_path):
    artifact.save(tmp_path)
    assert Artifact.load(tmp_path) == artifact


def test_artifacts_are_found_below_folders_in_a_stable_order_and_once(artifact, tmp_path):
    for name in ("b", "a", "c/d"):
        replace(artifact, name=name).save(tmp_path / name)
    assert [artifact.name for artifact in find_artifacts([tmp_path, tmp_path / "a"])] == ["a", "b", "c/d"]
    assert find_artifacts([tmp_path / "nowhere"]) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "null",
        lambda text: '"artifact"',
        lambda text: "[1, 2]",
        lambda text: text.replace("classnorm-artifact", "another"),
        lambda text: text.replace('"format"', '"formal"'),
        lambda text: text.replace('"tables"', '"fables"'),
        lambda text: text.replace('"log_x"', '"log_z"'),
        lambda text: text.replace('"rank"', '"rang"'),
        lambda text: text.replace('"notes"', '"verdicts": [5], "notes"'),
        lambda text: text.replace('"notes"', '"verdicts": [{"claim": []}], "notes"'),
        lambda text: text.replace('"#009E73"', '"url(x)"'),
        lambda text: "\x00" * 40,
    ],
)
def test_a_damaged_artifact_is_a_data_error_that_names_the_file(artifact, tmp_path, damage):
    artifact.save(tmp_path)
    path = tmp_path / "artifact.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=r"artifact\.json: .*; make it again"):
        Artifact.load(tmp_path)


def test_an_artifact_that_is_not_text_is_a_data_error(tmp_path):
    (tmp_path / "artifact.json").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(DataError):
        Artifact.load(tmp_path)


def test_every_table_and_plot_is_a_file(artifact, tmp_path):
    written = write_artifact(artifact, tmp_path / "main")
    names = {path.name for path in (tmp_path / "main").iterdir()}
    tables = {f"table{number}.{suffix}" for number in ("", "-2") for suffix in ("md", "csv", "tex")}
    assert names == tables | {"curve.png", "boxes.png", "data.json", "artifact.json"}
    assert {path.name for path in written} == names - {"artifact.json"}
    assert all(path.is_file() for path in written)
    assert (tmp_path / "main" / "curve.png").read_bytes().startswith(PNG)
    assert json.loads((tmp_path / "main" / "data.json").read_text()) == artifact.data
    assert Artifact.load(tmp_path / "main") == artifact


def test_writing_again_replaces_and_adds_nothing(artifact, tmp_path):
    write_artifact(artifact, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_artifact(artifact, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_each_row_is_in_every_form(artifact, tmp_path):
    write_artifact(artifact, tmp_path)
    rows = list(csv.reader((tmp_path / "table.csv").open(encoding="utf-8")))
    assert rows == [["model", "H"], *([name, f"{10 * i}.5 ± 0.1"] for i, name in enumerate(NAMES))]
    markdown = (tmp_path / "table.md").read_text()
    assert "| a \\<b>bold\\</b> & brash \\| one\\_two | **10.5 ± 0.1** |" in markdown
    assert "| γ = 5, −AN | *20.5 ± 0.1* |" in markdown
    latex = (tmp_path / "table.tex").read_text()
    assert latex.startswith("% Measured <here>\n\\begin{tabular}{lr}")
    assert r"$\gamma$ = 5, $-$AN & \underline{20.5 $\pm$ 0.1} \\" in latex
    assert r"bold</b> \& brash | one\_two & \textbf{10.5 $\pm$ 0.1} \\" in latex


def test_an_artifact_with_nothing_in_it_is_a_page_too(tmp_path):
    empty = Artifact("empty", "Empty", "")
    assert write_artifact(empty, tmp_path) == [tmp_path / "data.json"]
    assert "Empty" in artifact_section(empty)
    assert Artifact.load(tmp_path) == empty
