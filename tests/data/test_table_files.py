"""Tables a user brings: the same numbers from every kind of file, and plain words for what is wrong in one."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from classnorm.data.descriptions import read_descriptions
from classnorm.data.table_files import read_descriptors, read_features
from classnorm.errors import DataError

NAMES = ["okapi", "zebra, plains", "Größe"]
TABLE = np.array([[0.25, 1e-3, -2.0], [4.0, 0.0, 3.5], [1.0, 2.0, 1 / 3]])


def write_csv(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


NAMED_ROWS = [[name, *row.tolist()] for name, row in zip(NAMES, TABLE, strict=True)]
DATES = pa.array([0, 1, 2], pa.timestamp("s"))
COLUMNS = {"x": TABLE[:, 0], "y": TABLE[:, 1], "z": TABLE[:, 2]}


def csv_of_a_spreadsheet(folder: Path) -> Path:
    path = write_csv(folder / "new.csv", [["class", "size", "speed", "age"], *NAMED_ROWS])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n\r\n")
    return path


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def json_file(folder: Path) -> Path:
    document = dict(zip(NAMES, TABLE.tolist(), strict=True))
    (folder / "new.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return folder / "new.json"


def npy_and_txt(folder: Path) -> Path:
    np.save(folder / "new.npy", TABLE)
    (folder / "new.txt").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    return folder / "new.npy"


DESCRIPTORS: dict[str, Callable[[Path], Path]] = {
    "csv without header": lambda folder: write_csv(folder / "new.csv", NAMED_ROWS),
    "csv with header": lambda folder: write_csv(folder / "new.csv", [["class", "size", "speed", "age"], *NAMED_ROWS]),
    "what pandas writes of an array": lambda folder: write_csv(folder / "new.csv", [["", 0, 1, 2], *NAMED_ROWS]),
    "numbered columns": lambda folder: write_csv(folder / "new.csv", [["class", 0, 1, 2], *NAMED_ROWS]),
    "csv of a spreadsheet": csv_of_a_spreadsheet,
    "parquet": lambda folder: write_parquet(folder / "new.parquet", {"name": NAMES} | COLUMNS),
    "parquet with categories": lambda folder: write_parquet(
        folder / "new.parquet", {"name": pa.array(NAMES).dictionary_encode()} | COLUMNS
    ),
    "json": json_file,
    "npy and txt": npy_and_txt,
}


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_descriptors_are_the_same_from_every_kind_of_file(tmp_path, kind):
    descriptors = read_descriptors(DESCRIPTORS[kind](tmp_path))
    assert list(descriptors) == NAMES
    np.testing.assert_array_equal(np.stack(list(descriptors.values())), TABLE)


def test_a_thousand_columns_are_not_mistaken_for_a_header(tmp_path):
    rows = [[f"c{i}", *range(i, 1000 + i)] for i in range(1, 4)]
    assert list(read_descriptors(write_csv(tmp_path / "new.csv", rows))) == ["c1", "c2", "c3"]


def features_npy(folder: Path) -> Path:
    np.save(folder / "x.npy", TABLE)
    return folder / "x.npy"


def features_npz(folder: Path) -> Path:
    np.savez(folder / "x.npz", features=TABLE, labels=np.zeros(3))
    return folder / "x.npz"


FEATURES: dict[str, Callable[[Path], Path]] = {
    "npy": features_npy,
    "npz": features_npz,
    "csv": lambda folder: write_csv(folder / "x.csv", TABLE.tolist()),
    "csv with header": lambda folder: write_csv(folder / "x.csv", [["a", "b", "c"], *TABLE.tolist()]),
    "numbered columns": lambda folder: write_csv(folder / "x.csv", [[0, 1, 2], *TABLE.tolist()]),
    "names of pictures": lambda folder: write_csv(
        folder / "x.csv", [[f"{i}.jpg", *row] for i, row in enumerate(TABLE.tolist())]
    ),
    "parquet": lambda folder: write_parquet(folder / "x.parquet", COLUMNS),
}


@pytest.mark.parametrize("kind", FEATURES)
def test_features_are_the_same_from_every_kind_of_file(tmp_path, kind):
    np.testing.assert_array_equal(read_features(FEATURES[kind](tmp_path)), TABLE.astype(np.float32))


def test_features_of_a_matlab_file_are_one_row_an_image(tmp_path, write_mat):
    write_mat(tmp_path / "x.mat", {"features": TABLE[:2].T})
    np.testing.assert_array_equal(read_features(tmp_path / "x.mat"), TABLE[:2].astype(np.float32))


def test_half_precision_features_stay_memory_mapped(tmp_path):
    np.save(tmp_path / "x.npy", TABLE.astype(np.float16))
    features = read_features(tmp_path / "x.npy")
    assert isinstance(features, np.memmap) and features.dtype == np.float16


def raw(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / name

    return write


def npy_and_names(array: np.ndarray, names: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.save(folder / "new.npy", array)
        (folder / "new.txt").write_bytes(names)
        return folder / "new.npy"

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (raw("new.csv", "1,2,3\n4,5,6\n"), "the first column must contain class names"),
        (raw("new.csv", "okapi,1,2\nzebra,1\n"), "class 'zebra' has 1 values, the first 2"),
        (
            raw("new.csv", "okapi,1,2\nzebra,1,tall\n"),
            "class 'zebra' contains 'tall' in the column .*, which is not a number; write one there",
        ),
        (raw("new.csv", "okapi,1,2\nokapi,3,4\n"), "class name 'okapi' occurs twice"),
        (raw("new.csv", "name,size\n"), "contains no rows"),
        (raw("new.csv", ""), "contains no rows"),
        (raw("new.csv", "okapi\nzebra\n"), "contains no"),
        (raw("new.csv", b"okapi,1,\x81\n"), "not a readable CSV file"),
        (raw("new.json", "[1, 2]"), "must contain"),
        (raw("new.json", "{}"), "must contain"),
        (raw("new.json", '{"okapi": [1, 2'), "not readable JSON"),
        (raw("new.json", '{"okapi": 5}'), "class 'okapi' must be a list of numbers"),
        (raw("new.json", '{"okapi": null}'), "class 'okapi' must be a list of numbers"),
        (raw("new.json", '{"okapi": "123"}'), "class 'okapi' must be a list of numbers"),
        (
            raw("new.json", '{"okapi": [1, "tall"]}'),
            "class 'okapi' contains 'tall' in the column .*, which is not a number; write one there",
        ),
        (raw("new.json", '{"okapi": [1, [2]]}'), "class 'okapi' contains .*which is not a number"),
        (raw("new.json", '{"okapi": [1], "zebra": [1, 2]}'), "class 'zebra' has 2 values, the first 1"),
        (raw("new.json", '{"okapi": [1' + "0" * 400 + "]}"), "class 'okapi' contains .*which is not a number"),
        (raw("new.json", '{"okapi": [1], "okapi": [2]}'), "class name 'okapi' occurs twice"),
        (raw("new.json", b'{"\xff": [1]}'), "not readable JSON"),
        (raw("new.parquet", b"not parquet"), "not a readable Parquet file"),
        (raw("new.npy", b"not an array"), r"new\.txt: no such file"),
        (npy_and_names(TABLE, b"okapi\nzebra\n"), r"2 class names for a table of shape \(3, 3\)"),
        (npy_and_names(TABLE[0], b"okapi\nzebra\nquagga\n"), "3 class names for a table of shape"),
        (npy_and_names(np.array([["a"], ["b"]]), b"okapi\nzebra\n"), "not numbers"),
        (npy_and_names(TABLE, b"okapi\n\xff\nquagga\n"), r"new\.txt: not readable"),
        (
            lambda folder: write_parquet(folder / "new.parquet", {"name": NAMES, "vector": TABLE.tolist()}),
            "class 'okapi' contains .*which is not a number",
        ),
        (
            lambda folder: write_parquet(folder / "new.parquet", {"name": NAMES, "x": TABLE[:, 0], "day": DATES}),
            "not numbers",
        ),
        (raw("new.xlsx", b""), "cannot be read from a .xlsx file; use .csv, .parquet, .json, .npy"),
    ],
)
def test_invalid_descriptors_raise_an_error_that_says_why(tmp_path, write, message):
    with pytest.raises(DataError, match=rf"new\.\w+: .*{message}" if "txt" not in message else message):
        read_descriptors(write(tmp_path))


def pickled(folder: Path) -> Path:
    np.save(folder / "x.npy", np.array([{}], dtype=object))
    return folder / "x.npy"


def truncated(folder: Path) -> Path:
    path = features_npy(folder)
    path.write_bytes(path.read_bytes()[:-8])
    return path


def empty_matrix(folder: Path) -> Path:
    np.save(folder / "x.npy", np.zeros((3, 0)))
    return folder / "x.npy"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: folder / "x.npy", "no such file"),
        (raw("x.txt", b"1 2 3"), "features cannot be read from a .txt file"),
        (raw("x", b"1 2 3"), "features cannot be read from a nameless file"),
        (raw("x.npy", b"1 2 3"), "not a readable .npy file"),
        (raw("x.npy", b""), "not a readable .npy file"),
        (pickled, "holds Python objects, which are never loaded"),
        (truncated, "not a readable .npy file"),
        (raw("x.csv", "1,2\n3,nan\n"), r"features of row 1 \(0-based\) hold NaN"),
        (empty_matrix, "features have no columns"),
    ],
)
def test_invalid_features_raise_an_error_that_says_why(tmp_path, write, message):
    with pytest.raises(DataError, match=rf"x(\.\w+)?: {message}"):
        read_features(write(tmp_path))


def test_a_cell_array_is_not_a_feature_matrix(tmp_path, write_mat):
    write_mat(tmp_path / "x.mat", {"features": ["a", "b"]}, "v7.3")
    with pytest.raises(DataError, match=r"x\.mat: features must be a numeric matrix"):
        read_features(tmp_path / "x.mat")


def test_an_npz_file_without_features_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=TABLE)
    with pytest.raises(DataError, match=r"x\.npz: the array 'features' is missing"):
        read_features(tmp_path / "x.npz")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize(
    ("header", "separator", "comma"),
    [(True, ",", "."), (True, ";", "."), (True, ";", ","), (True, "\t", "."), (True, "\t", ","), (False, ";", ",")],
)
def test_tables_of_spreadsheets_are_read_whatever_their_separator(tmp_path, encoding, header, separator, comma):
    rows = [["Grünfink", "0.5", "1", "-2.25e-1"], ["Möwe", "3", "0.125", "7"]]
    lines = [["name", "wing", "beak", "tail"]] * header + [[cell.replace(".", comma) for cell in row] for row in rows]
    if comma == "," and separator == "\t":
        lines[1:] = rows  # decimal commas belong to semicolons
    path = tmp_path / "table.csv"
    path.write_text("\r\n".join(separator.join(line) for line in lines), encoding=encoding)
    table = read_descriptors(path)
    assert {name: vector.tolist() for name, vector in table.items()} == {
        "Grünfink": [0.5, 1.0, -0.225],
        "Möwe": [3.0, 0.125, 7.0],
    }


def test_a_comma_within_text_separates_nothing_in_a_file_of_semicolons(tmp_path):
    path = tmp_path / "sentences.csv"
    path.write_text("name;description\nwren;small, brown\n")
    assert read_descriptions(path).sentences == (("small, brown",),)


def test_an_empty_cell_is_named_by_class_and_column(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("name,wing,beak\nwren,1,2\ntern,3,\n")
    for read in (read_descriptors, read_descriptions):
        with pytest.raises(DataError, match="class 'tern' has no number in the column 'beak'; fill in the empty cell"):
            read(path)


def test_a_message_does_not_quote_hundreds_of_columns(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("|".join(f"attribute {i}" for i in range(312)) + "\nwren|is|small\n")
    with pytest.raises(DataError, match="separator: comma, semicolon or tab") as caught:
        read_descriptions(path)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_a_parquet_file_with_names_that_are_no_text_is_refused(tmp_path):
    path = tmp_path / "new.parquet"
    columns = pa.table({"name": ["okapi-okapi", "zebra"], "x": [1.0, 2.0]})
    pq.write_table(columns, path, compression="none", use_dictionary=False, write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"okapi-okapi", b"okapi\x80okapi"))
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_descriptors(path)
