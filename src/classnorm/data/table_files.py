"""Files of features and descriptors: CSV, Parquet, JSON, npy, npz and mat."""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.checks import check_array, check_distinct
from classnorm.data.row_store import FloatArray
from classnorm.errors import DataError
from classnorm.io.arrays import read_npy, read_npz, texts
from classnorm.io.documents import read_regular
from classnorm.io.files import replacing, write_json
from classnorm.io.matlab import read_mat

_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")

Named = tuple[list[str] | None, npt.NDArray[np.float64]]
"""Row names, or None if the first column contains numbers; and the numbers."""


def read_features(path: Path) -> FloatArray:
    """Read features [n, d_z] from `.npy`, `.npz` (key `features`), `.mat` (GBU layout), `.csv` or `.parquet`."""
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": read_npy,
        ".npz": lambda file: read_npz(file, ("features",))["features"],
        ".mat": lambda file: np.asarray(read_mat(file, ["features"])["features"]).T,
        ".csv": lambda file: _read_csv(file)[1],
        ".parquet": lambda file: _read_parquet(file)[1],
    }
    return check_array(_reader(path, readers, "features")(path), str(path))


def read_descriptors(path: Path) -> dict[str, npt.NDArray[np.float64]]:
    """Read class name → descriptor.

    - `.csv`, `.parquet`: the class name in the first column, numbers in the others.
    - `.json`: `{"name": [numbers]}`.
    - `.npy`: an array [n_classes, d_a], with the class names in a text file of the same name (`new.npy`, `new.txt`),
      one per line.
    - `.npz`: the arrays `class_names` and `descriptors`, as written by `classnorm describe` and in bundles.
    """
    readers: dict[str, Callable[[Path], Named]] = {
        ".csv": _read_csv,
        ".parquet": _read_parquet,
        ".json": _read_json,
        ".npy": _read_named_npy,
        ".npz": _read_named_npz,
    }
    names, table = _reader(path, readers, "descriptors")(path)
    if names is None:
        raise DataError(f"{path}: the first column must contain class names")
    if len(names) != len(table) or table.ndim != 2:
        raise DataError(f"{path}: {len(names)} class names for a table of shape {table.shape}; give one row per class")
    check_distinct(names, str(path))
    return dict(zip(names, table, strict=True))


def descriptor_columns(path: Path) -> list[str]:
    """Return the names of the numbers in a file of descriptors; empty if it is no table with a header."""
    if path.suffix.lower() == ".parquet":
        return [name for name, _ in parquet_columns(path)][1:]
    header = csv_rows(path)[0] if path.suffix.lower() == ".csv" else []
    return header[1:] if is_header(header) else []


def descriptor_writer(path: Path) -> Callable[..., None]:
    """Return the function that writes (path, names, table, columns, extra arrays) in the format of `path`.

    `read_descriptors` reads all formats; only `.npz` stores the extra arrays.
    """
    writers: dict[str, Callable[..., None]] = {
        ".npz": _write_npz,
        ".csv": _write_csv,
        ".parquet": _write_parquet,
        ".json": _write_json,
    }
    if path.suffix.lower() not in writers or path.is_dir():
        raise DataError(f"{path}: descriptors cannot be written there; the file name must end in {', '.join(writers)}")
    return writers[path.suffix.lower()]


def _write_npz(
    path: Path, names: Sequence[str], table: FloatArray, columns: Sequence[str], extra: Mapping[str, Any]
) -> None:
    arrays = {"class_names": np.array(names), "descriptors": table, "columns": np.array(columns), **extra}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _write_csv(path: Path, names: Sequence[str], table: FloatArray, columns: Sequence[str], extra: object) -> None:
    # A header line is recognised by having no numbers.
    header = [f"_{column}" if is_number(column) else column for column in columns]
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", *header])
        writer.writerows([name, *map(str, row)] for name, row in zip(names, table, strict=True))


def _write_json(path: Path, names: Sequence[str], table: FloatArray, columns: object, extra: object) -> None:
    # float(str(x)) has as few digits as identify x in float32.
    write_json(path, {name: [float(str(x)) for x in row] for name, row in zip(names, table, strict=True)})


def _write_parquet(path: Path, names: Sequence[str], table: FloatArray, columns: Sequence[str], extra: object) -> None:
    pyarrow = _pyarrow(path)
    with replacing(path) as temporary:
        pyarrow.parquet.write_table(
            pyarrow.table([pyarrow.array(names), *table.T], names=["name", *columns]), temporary
        )


def _reader(path: Path, readers: dict[str, Callable[[Path], Any]], content: str) -> Callable[[Path], Any]:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() not in readers:
        raise DataError(
            f"{path}: {content} cannot be read from a {path.suffix or 'nameless'} file; use {', '.join(readers)}"
        )
    return readers[path.suffix.lower()]


def _read_named_npy(path: Path) -> Named:
    names_file = path.with_suffix(".txt")
    if not names_file.is_file():
        raise DataError(f"{names_file}: no such file; an .npy table needs its class names there, one per line")
    array = read_npy(path)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{path}: contains {array.dtype}, not numbers")
    return text_lines(names_file), array.astype(np.float64)


def text_lines(path: Path) -> list[str]:
    """Return the non-empty lines of a text file, stripped."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as UTF-8 text ({error})") from error
    return [line.strip() for line in lines if line.strip()]


def _read_named_npz(path: Path) -> Named:
    content = read_npz(path, ("class_names", "descriptors"))
    names, table = content["class_names"], content["descriptors"]
    if names.dtype.kind not in "US" or table.dtype.kind not in "fiub":
        raise DataError(f"{path}: class_names must hold texts and descriptors numbers")
    return texts(names), table.astype(np.float64)


def _read_json(path: Path) -> Named:
    pairs = json_document(path)
    if not isinstance(pairs, tuple) or not pairs:
        raise DataError(f'{path}: must contain {{"class name": [numbers], …}}')
    for name, values in pairs:
        if not isinstance(values, list):
            raise DataError(f"{path}: class {name!r} must be a list of numbers")
    names = [name for name, _ in pairs]
    return names, matrix([values for _, values in pairs], path, names)


def json_document(path: Path) -> Any:
    """Read a JSON file; objects become tuples of (name, value), so that repeated names can be detected."""
    try:
        return json.loads(read_regular(path, "use another file", most=1 << 31), object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not readable JSON ({error})") from error


def _read_csv(path: Path) -> Named:
    rows = csv_rows(path)
    named = rows[0][0].strip().casefold() in ("name", "class")  # even if the classes are called 1, 2, 3
    columns = rows[0] if is_header(rows[0]) else None
    if columns is not None:
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path}: contains no rows")
    if not named and all(is_number(row[0]) for row in rows):
        return None, matrix(rows, path, columns=columns)
    names = [row[0].strip() for row in rows]
    return names, matrix([row[1:] for row in rows], path, names, columns and columns[1:])


def csv_rows(path: Path) -> list[list[str]]:
    """Return the cells of all non-empty lines; `csv_lines` says which dialects are understood."""
    try:
        rows = [row for _, row in csv_lines(path) if row]
    except csv.Error as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from error
    if not rows:
        raise DataError(f"{path}: contains no rows")
    return rows


def csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the rows of a CSV file: the number of the line where it ends, and the cells.

    Spreadsheets write commas, semicolons or tabs between cells, in UTF-8 or the code page of Western Europe; the first
    line and the bytes tell which. Where cells end with a semicolon, numbers may have a decimal comma.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: not a readable CSV file ({error.strerror})") from error
    try:
        text = _decoded(content)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a readable CSV file; save it as CSV in UTF-8") from error
    separator = _separator(next(iter(text.splitlines()), ""))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    for row in reader:
        yield reader.line_num, [_with_point(cell) for cell in row] if separator == ";" else row


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" in content:
            raise
        return content.decode("cp1252")


def _separator(line: str) -> str:
    """Of the cells of a line; commas of text and of decimals are none."""
    for mark in (";", "\t"):
        cells = next(csv.reader([line], delimiter=mark), [])
        if len(cells) > 1 and all("," not in cell or _DECIMAL_COMMA.fullmatch(cell.strip()) for cell in cells):
            return mark
    return ","


def _with_point(cell: str) -> str:
    return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell.strip()) else cell


def _read_parquet(path: Path) -> Named:
    arrays = [values for _, values in parquet_columns(path)]
    if arrays and arrays[0].dtype.kind in "OUS":
        classes = [str(name) for name in arrays[0]]
        return classes, matrix(np.stack(arrays[1:], axis=1) if len(arrays) > 1 else [], path, classes)
    return None, matrix(np.stack(arrays, axis=1) if arrays else [], path)


def parquet_columns(path: Path) -> list[tuple[str, npt.NDArray[Any]]]:
    """Return (name, values) of each column."""
    pyarrow = _pyarrow(path)
    try:
        table = pyarrow.parquet.read_table(path)
        columns = [(name, column.to_numpy()) for name, column in zip(table.column_names, table.columns, strict=True)]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last for names that are no text
        raise DataError(f"{path}: not a readable Parquet file") from error
    for name, column in columns:
        if column.dtype.kind not in "fiubOUS":
            raise DataError(f"{path}: the column {name!r} contains {column.dtype}, not numbers")
    return columns


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs pyarrow; pip install 'classnorm[parquet]'") from error
    return pyarrow


def is_header(cells: Sequence[str]) -> bool:
    """Whether the first line names the columns: it has no numbers, or counts 0, 1, 2, … like a DataFrame."""
    indices = [str(i) for i in range(len(cells))]
    is_index = len(cells) > 2 and (cells == indices or cells[1:] == indices[:-1])
    return is_index or not any(map(is_number, cells))


def is_number(cell: Any) -> bool:
    """Whether a cell contains a number."""
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def matrix(
    rows: Any, path: Path, names: list[str] | None = None, columns: Sequence[str] | None = None
) -> npt.NDArray[np.float64]:
    """Convert rows of cells to numbers; `names` and `columns` are those of rows and columns, for error messages."""
    lengths = [len(row) for row in rows]
    if not lengths or not lengths[0]:
        raise DataError(f"{path}: contains no numbers")
    for i, length in enumerate(lengths):
        if length != lengths[0]:
            raise DataError(f"{path}: {_row(i, names)} has {length} values, the first {lengths[0]}")
    try:
        return np.array(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                if value is None or not str(value).strip():
                    raise DataError(
                        f"{path}: {_row(i, names)} has no number in the column {_column(j, row, columns)}; fill in the "
                        "empty cell"
                    ) from None
                if not is_number(value):
                    is_text = names and 2 * sum(map(is_number, row)) < len(row)
                    hint = "convert text to descriptors with `classnorm describe`" if is_text else "write one there"
                    cell = f"{shortened(value)} in the column {_column(j, row, columns)}"
                    raise DataError(
                        f"{path}: {_row(i, names)} contains {cell}, which is not a number; {hint}"
                    ) from None
        raise


def shortened(cell: object) -> str:
    """A cell as messages show it."""
    words = textwrap.shorten(repr(cell), 60, placeholder="…")
    return words if len(words) > 1 else f"{repr(cell)[:59]}…"  # of one long word nothing is left


def _column(column: int, row: Sequence[Any], names: Sequence[str] | None) -> str:
    return repr(names[column]) if names and column < len(names) else f"{column + 1} of {len(row)}"


def _row(row: int, names: list[str] | None) -> str:
    return f"class {names[row]!r}" if names else f"row {row} (0-based)"
