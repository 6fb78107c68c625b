"""Feature matrices and descriptor tables: CSV, Parquet, JSON, npy, npz, mat."""

from __future__ import annotations

import csv
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.bundle import read_npz, texts
from classnorm.data.dataset import FloatArray, check_distinct, check_features
from classnorm.data.xlsa17 import read_mat
from classnorm.errors import DataError
from classnorm.files import replacing, write_json

__all__ = [
    "csv_rows",
    "descriptor_writer",
    "is_header",
    "is_number",
    "json_document",
    "matrix",
    "parquet_columns",
    "read_descriptors",
    "read_features",
    "text_lines",
]

Named = tuple[list[str] | None, npt.NDArray[np.float64]]
"""Names of the rows, if the first column holds any, and the numbers."""


def read_features(path: Path) -> FloatArray:
    """A matrix [n, d_z] from `.npy`, `.npz` (key `features`), `.mat` (GBU layout), `.csv` or `.parquet`."""
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": _read_npy,
        ".npz": lambda file: read_npz(file, ("features",))["features"],
        ".mat": lambda file: np.asarray(read_mat(file, ["features"])["features"]).T,
        ".csv": lambda file: _read_csv(file)[1],
        ".parquet": lambda file: _read_parquet(file)[1],
    }
    return check_features(_reader(path, readers, "features")(path), str(path))


def read_descriptors(path: Path) -> dict[str, npt.NDArray[np.float64]]:
    """Class name → descriptor.

    CSV and Parquet: the class name in the first column, numbers in the others. JSON: `{"name": [numbers]}`.
    `.npy`: a [classes, dimensions] array, with the names in a text file beside it, one a line (`new.npy`, `new.txt`).
    `.npz`: the arrays `class_names` and `descriptors`, as `classnorm describe` writes them; a bundle has them too.
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
        raise DataError(f"{path}: the first column must hold class names")
    if len(names) != len(table) or table.ndim != 2:
        raise DataError(f"{path}: {len(names)} class names for a table of shape {table.shape}; give one row per class")
    check_distinct(names, str(path))
    return dict(zip(names, table, strict=True))


def descriptor_writer(path: Path) -> Callable[..., None]:
    """What writes (path, names, table, columns, extra arrays) in the format of the file name.

    All can be read by `read_descriptors`; only `.npz` holds the extra arrays.
    """
    writers: dict[str, Callable[..., None]] = {
        ".npz": _write_npz,
        ".csv": _write_csv,
        ".parquet": _write_parquet,
        ".json": _write_json,
    }
    if path.suffix.lower() not in writers or path.is_dir():
        raise DataError(f"{path}: descriptors cannot be written there; give a file that ends in {', '.join(writers)}")
    return writers[path.suffix.lower()]


def _write_npz(
    path: Path, names: Sequence[str], table: FloatArray, columns: Sequence[str], extra: Mapping[str, Any]
) -> None:
    arrays = {"class_names": np.array(names), "descriptors": table, "columns": np.array(columns), **extra}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _write_csv(path: Path, names: Sequence[str], table: FloatArray, columns: Sequence[str], extra: object) -> None:
    # A line of column names is told from a class by its words.
    header = [f"_{column}" if is_number(column) else column for column in columns]
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", *header])
        writer.writerows([name, *row] for name, row in zip(names, _shortest(table), strict=True))


def _write_json(path: Path, names: Sequence[str], table: FloatArray, columns: object, extra: object) -> None:
    write_json(path, {name: [float(x) for x in row] for name, row in zip(names, _shortest(table), strict=True)})


def _write_parquet(path: Path, names: Sequence[str], table: FloatArray, columns: Sequence[str], extra: object) -> None:
    pyarrow = _pyarrow(path)
    named = pyarrow.table([pyarrow.array(names), *table.T], names=["name", *columns])
    with replacing(path) as temporary:
        pyarrow.parquet.write_table(named, temporary)


def _shortest(table: FloatArray) -> list[list[str]]:
    """The numbers in as few digits as give them back."""
    return [[str(value) for value in row] for row in table]


def _reader(path: Path, readers: dict[str, Callable[[Path], Any]], what: str) -> Callable[[Path], Any]:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() not in readers:
        raise DataError(
            f"{path}: {what} cannot be read from a {path.suffix or 'nameless'} file; use {', '.join(readers)}"
        )
    return readers[path.suffix.lower()]


def _read_npy(path: Path) -> npt.NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: not a readable .npy file; it may be damaged") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: not a single array")
    return array


def _read_named_npy(path: Path) -> Named:
    names_file = path.with_suffix(".txt")
    if not names_file.is_file():
        raise DataError(f"{names_file}: no such file; an .npy table needs its class names there, one a line")
    names = text_lines(names_file)
    array = _read_npy(path)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{path}: holds {array.dtype}, not numbers")
    return names, array.astype(np.float64)


def text_lines(path: Path) -> list[str]:
    """The lines of a text file that hold anything, stripped."""
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
        raise DataError(f'{path}: must hold {{"class name": [numbers], …}}')
    for name, values in pairs:
        if not isinstance(values, list):
            raise DataError(f"{path}: class {name!r} must be a list of numbers")
    names = [name for name, _ in pairs]
    return names, matrix([values for _, values in pairs], path, names)


def json_document(path: Path) -> Any:
    """What a JSON file holds, objects as tuples of (name, value): a dict would keep the last of two same names."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=tuple)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable JSON ({error})") from error


def _read_csv(path: Path) -> Named:
    rows = csv_rows(path)
    named = rows[0][0].strip().casefold() in ("name", "class")  # then also of classes that are called 1, 2, 3
    if is_header(rows[0]):
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path}: holds no rows")
    if not named and all(is_number(row[0]) for row in rows):
        return None, matrix(rows, path)
    names = [row[0].strip() for row in rows]
    return names, matrix([row[1:] for row in rows], path, names)


def csv_rows(path: Path) -> list[list[str]]:
    """The cells of all lines that hold any."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from error
    if not rows:
        raise DataError(f"{path}: holds no rows")
    return rows


def _read_parquet(path: Path) -> Named:
    arrays = [values for _, values in parquet_columns(path)]
    if arrays and arrays[0].dtype.kind in "OUS":
        classes = [str(name) for name in arrays[0]]
        return classes, matrix(np.stack(arrays[1:], axis=1) if len(arrays) > 1 else [], path, classes)
    return None, matrix(np.stack(arrays, axis=1) if arrays else [], path)


def parquet_columns(path: Path) -> list[tuple[str, npt.NDArray[Any]]]:
    """(name, numbers or objects) of each column."""
    pyarrow = _pyarrow(path)
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file") from error
    columns = [(name, column.to_numpy()) for name, column in zip(table.column_names, table.columns, strict=True)]
    for name, column in columns:
        if column.dtype.kind not in "fiubOUS":
            raise DataError(f"{path}: the column {name!r} holds {column.dtype}, not numbers")
    return columns


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs pyarrow; pip install 'classnorm[parquet]'") from error
    return pyarrow


def is_header(cells: Sequence[str]) -> bool:
    """Whether a first line names columns: by words, or by counting them 0, 1, 2, … as data frames do."""
    counted = [str(i) for i in range(len(cells))]
    if len(cells) > 2 and (cells == counted or cells[1:] == counted[:-1]):
        return True
    return not any(is_number(cell) for cell in cells)


def is_number(text: str) -> bool:
    """Whether a cell of a table is one."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def matrix(rows: Any, path: Path, names: list[str] | None = None) -> npt.NDArray[np.float64]:
    """The numbers of rows of cells; `names` are those of the rows, for error messages."""
    lengths = [len(row) for row in rows]
    if not lengths or not lengths[0]:
        raise DataError(f"{path}: holds no numbers")
    if len(set(lengths)) > 1:
        odd = next(i for i, length in enumerate(lengths) if length != lengths[0])
        raise DataError(f"{path}: {_which(odd, names)} has {lengths[odd]} values, the first {lengths[0]}")
    try:
        return np.array(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        for i, row in enumerate(rows):
            for value in row:
                try:
                    float(value)
                except (TypeError, ValueError, OverflowError):
                    shown = textwrap.shorten(repr(value), 60, placeholder="…")
                    hint = "; make descriptors of text with `classnorm describe`" if names else ""
                    raise DataError(f"{path}: {_which(i, names)} holds {shown}, which is not a number{hint}") from None
        raise


def _which(row: int, names: list[str] | None) -> str:
    return f"class {names[row]!r}" if names else f"row {row} (0-based)"
