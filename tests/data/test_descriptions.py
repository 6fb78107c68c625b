"""What is said of classes: the same from every kind of file, and plain words for what is wrong in one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from classnorm.data.descriptions import read_descriptions
from classnorm.data.names import match_names, readable_name
from classnorm.errors import DataError

SAID = {"okapi": ("A shy animal.", "It has striped legs."), "Black_Rat": ("A rodent.",)}


def csv_of_columns(folder: Path) -> Path:
    return write(
        folder / "x.csv", "name,first,second\nokapi,A shy animal.,It has striped legs.\nBlack_Rat,A rodent.,\n"
    )


def csv_of_rows(folder: Path) -> Path:
    rows = "Class,text\nokapi,A shy animal.\nBlack_Rat,A  rodent.\nokapi,It has striped legs.\nokapi,A shy animal.\n"
    return write(folder / "x.csv", rows)


def json_of_lists(folder: Path) -> Path:
    return write(folder / "x.json", json.dumps({name: list(sentences) for name, sentences in SAID.items()}))


def json_of_both(folder: Path) -> Path:
    return write(folder / "x.json", json.dumps({"okapi": list(SAID["okapi"]), "Black_Rat": "A rodent."}))


def parquet(folder: Path) -> Path:
    columns = {"name": list(SAID), "a": ["A shy animal.", "A rodent."], "b": ["It has striped legs.", None]}
    pq.write_table(pa.table(columns), folder / "x.parquet")
    return folder / "x.parquet"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("make", [csv_of_columns, csv_of_rows, json_of_lists, json_of_both, parquet])
def test_sentences_come_in_columns_rows_and_lists(tmp_path, make):
    said = read_descriptions(make(tmp_path))
    assert dict(zip(said.names, said.sentences, strict=True)) == SAID
    assert said.table is None


def text_list(folder: Path) -> Path:
    return write(folder / "x.txt", "\ufeff001.Owl\n\n grey-seal \n")


def csv_list(folder: Path) -> Path:
    return write(folder / "x.csv", "name\n001.Owl\ngrey-seal\n")


def json_list(folder: Path) -> Path:
    return write(folder / "x.json", '["001.Owl", "grey-seal"]')


def folders(folder: Path) -> Path:
    for name in ("001.Owl", "grey-seal", ".hidden"):
        (folder / "images" / name).mkdir(parents=True)
    return folder / "images"


def cub_layout(folder: Path) -> Path:
    for name, text in {"classes": "1 001.Owl\n2 grey-seal\n", "images": "1 a.png\n"}.items():
        write(folder / f"{name}.txt", text)
    return folder


def bundle(folder: Path) -> Path:
    np.savez(folder / "x.npz", class_names=np.array(["001.Owl", "grey-seal"]), labels=np.zeros(3))
    return folder / "x.npz"


@pytest.mark.parametrize("make", [text_list, csv_list, json_list, folders, cub_layout, bundle])
def test_names_alone_are_made_readable(tmp_path, make):
    said = read_descriptions(make(tmp_path))
    assert said.names == ("001.Owl", "grey-seal")
    assert said.sentences == (("Owl",), ("grey seal",))


def test_a_gbu_folder_has_names_and_attributes(tmp_path, arrays, write_gbu):
    folder = write_gbu(tmp_path / "gbu", arrays)
    assert read_descriptions(folder).sentences == tuple((name,) for name in arrays["class_names"])
    table = read_descriptions(folder, numbers=True).table
    assert table is not None
    np.testing.assert_allclose(np.linalg.norm(table, axis=1), 1, rtol=1e-5)


def test_a_table_of_numbers_passes_through_with_its_columns(tmp_path):
    said = read_descriptions(write(tmp_path / "x.csv", "class,size,legs\nokapi,2.5,4\nowl,0.3,2\n"))
    assert (said.names, said.columns, said.sentences) == (("okapi", "owl"), ("size", "legs"), ())
    np.testing.assert_array_equal(said.table, np.array([[2.5, 4], [0.3, 2]], dtype=np.float32))
    assert said.notices == []


def test_what_is_of_no_use_is_noted(tmp_path):
    said = read_descriptions(write(tmp_path / "x.csv", "class,size,legs\nokapi,2,4\nOkapi,2,4\nox,3,4\n"))
    spelling, same, constant = said.notices
    assert "'okapi', 'Okapi' differ only in spelling" in spelling
    assert "'okapi', 'Okapi' have the same description" in same
    assert constant.endswith("of no use: 'legs'")


@pytest.mark.parametrize(
    ("name", "readable"),
    [("001.Black_footed_Albatross", "Black footed Albatross"), ("grizzly+bear", "grizzly bear"), ("747", "747"),
     ("707-320", "707 320"), ("B-52", "B 52"), ("_", "_")],
)  # fmt: skip
def test_readable_names(name, readable):
    assert readable_name(name) == readable


def test_names_that_differ_in_spelling_only_are_the_same_class():
    assert match_names(["002.Grey_Seal", "owl"], "a", ["Owl", "grey-seal", "owl"], "b") == [1, 2]


@pytest.mark.parametrize(
    ("wanted", "known", "message"),
    [
        (["gray wolf", "ox", "ax"], ["grey wolf", "owl"], r"b: no description of the class 'gray wolf' and of 2 more "
         r"\('ox', 'ax'\) of a; did you mean 'grey wolf'\?"),
        (["OWL"], ["owl", "Owl"], "b: 'owl', 'Owl' all match the class 'OWL' of a"),
        (["1.owl", "2.owl"], ["owl"], "a: '1.owl', '2.owl' all match the class 'owl' of b"),
    ],
)  # fmt: skip
def test_names_that_cannot_be_matched_are_named(wanted, known, message):
    with pytest.raises(DataError, match=message):
        match_names(wanted, "a", known, "b")


BAD: dict[str, tuple[str, str | bytes, str]] = {
    "nothing there": ("", "", "no such file or folder"),
    "strange kind": ("x.pdf", "x", "no descriptions in this type of file; use .txt"),
    "empty list": ("x.txt", "\n\n", "holds no class; it needs one per line"),
    "twice in a list": ("x.txt", "owl\nox\nowl\n", "class name 'owl' occurs twice"),
    "not text": ("x.txt", b"\xff\xfe\x00", "not readable as UTF-8 text"),
    "empty csv": ("x.csv", "", "contains no rows"),
    "header only": ("x.csv", "name,text\n", "holds no class"),
    "damaged csv": ("x.csv", b"name,text\nowl,\x81\n", "not a readable CSV file"),
    "no header": (
        "x.csv",
        "owl,a bird\nox,a beast\n",
        "first line must name the columns, the first of them name or class",
    ),
    "nothing said": ("x.csv", "name,text\nowl,a bird\nox,\n", "class 'ox' has no description"),
    "no name": ("x.csv", "name,text\n,a bird\nox,a beast\n", "class 1 has no name"),
    "twice in a table": ("x.csv", "name,a,b\nowl,1,2\nowl,3,4\n", "class name 'owl' occurs twice"),
    "a word among numbers": (
        "x.csv",
        "name,a,b\nowl,1,2\nox,3,big\n",
        "class 'ox' contains 'big' in the column 'b', which is not a number; write one there",
    ),
    "not finite": ("x.csv", "name,a,b\nowl,1,nan\nox,3,4\n", "descriptor of class 'owl' holds NaN or infinity"),
    "all zero": ("x.csv", "name,a,b\nowl,0,0\nox,3,4\n", "descriptor of class 'owl' is all zero"),
    "no json": ("x.json", "{", "not readable JSON"),
    "a number": ("x.json", "3", 'must contain {"class name": "sentence"'),
    "an empty object": ("x.json", "{}", "holds no class"),
    "an object in it": ("x.json", '{"owl": {"a": 1}}', "class 'owl' must be a sentence"),
    "two kinds": ("x.json", '{"owl": "a bird", "ox": [1, 2]}', "class 'ox' has numbers where others have sentences"),
    "twice in json": ("x.json", '{"owl": "a bird", "owl": "a beast"}', "class name 'owl' occurs twice"),
    "no archive": ("x.npz", "x", "not a readable .npz bundle"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_descriptions_raise_a_one_line_error(tmp_path, name):
    file, content, message = BAD[name]
    if file:
        (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as caught:
        read_descriptions(tmp_path / (file or "gone.txt"))
    assert message in str(caught.value) and str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_sentences_and_numbers_in_one_table_are_rejected(tmp_path):
    pq.write_table(pa.table({"name": ["owl"], "size": [1.0], "text": ["a bird"]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="column 'size' contains numbers and 'text' text"):
        read_descriptions(tmp_path / "x.parquet")


def test_attributes_must_be_numbers(tmp_path):
    with pytest.raises(DataError, match="holds no numbers"):
        read_descriptions(write(tmp_path / "x.txt", "owl\n"), numbers=True)


def test_a_sentence_with_commas_and_without_quotes_is_refused(tmp_path):
    file = tmp_path / "animals.csv"
    file.write_text("name,description\nokapi,It has stripes, and long legs\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2 \('okapi'\) has 3 cells.*quotes"):
        read_descriptions(str(file))
