"""Feature matrices and descriptor tables that a user brings: CSV, Parquet, JSON, npy, npz, mat."""

from __future__ import annotations

import csv
import json
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.bundle import read_npz
from classnorm.data.dataset import FloatArray, check_features
from classnorm.data.xlsa17 import read_mat
from classnorm.errors import DataError

__all__ = ["read_descriptors", "read_features"]

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
    """
    readers: dict[str, Callable[[Path], Named]] = {
        ".csv": _read_csv,
        ".parquet": _read_parquet,
        ".json": _read_json,
        ".npy": _read_named_npy,
    }
    names, table = _reader(path, readers, "descriptors")(path)
    if names is None:
        raise DataError(f"{path}: the first column must hold class names")
    if len(names) != len(table) or table.ndim != 2:
        raise DataError(f"{path}: {len(names)} class names for a table of shape {table.shape}; give one row per class")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path}: class name {twice[0]!r} occurs twice; names must be distinct")
    return dict(zip(names, table, strict=True))


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
    try:
        lines = names_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{names_file}: not readable as UTF-8 text ({error})") from error
    array = _read_npy(path)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{path}: holds {array.dtype}, not numbers")
    return [line.strip() for line in lines if line.strip()], array.astype(np.float64)


def _read_json(path: Path) -> Named:
    try:
        # Pairs instead of a dict, which would keep the last of two classes with the same name.
        document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=tuple)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable JSON ({error})") from error
    if not isinstance(document, tuple) or not document:
        raise DataError(f'{path}: must hold {{"class name": [numbers], …}}')
    for name, values in document:
        if not isinstance(values, list):
            raise DataError(f"{path}: class {name!r} must be a list of numbers")
    names = [name for name, _ in document]
    return names, _matrix([values for _, values in document], path, names)


def _read_csv(path: Path) -> Named:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from error
    if rows and _is_header(rows[0]):
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path}: holds no rows")
    if all(_is_number(row[0]) for row in rows):
        return None, _matrix(rows, path)
    names = [row[0].strip() for row in rows]
    return names, _matrix([row[1:] for row in rows], path, names)


def _read_parquet(path: Path) -> Named:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path}: reading Parquet needs pyarrow; pip install 'classnorm[parquet]'") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file") from error
    columns = [column.to_numpy() for column in table.columns]
    for name, column in zip(table.column_names, columns, strict=True):
        if column.dtype.kind not in "fiubOUS":
            raise DataError(f"{path}: the column {name!r} holds {column.dtype}, not numbers")
    if columns and columns[0].dtype.kind in "OUS":
        names = [str(name) for name in columns[0]]
        return names, _matrix(np.stack(columns[1:], axis=1) if len(columns) > 1 else [], path, names)
    return None, _matrix(np.stack(columns, axis=1) if columns else [], path)


def _is_header(cells: Sequence[str]) -> bool:
    """Whether a first line names columns: by words, or by counting them 0, 1, 2, … as data frames do."""
    counted = [str(i) for i in range(len(cells))]
    if len(cells) > 2 and (cells == counted or cells[1:] == counted[:-1]):
        return True
    return not any(_is_number(cell) for cell in cells)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _matrix(rows: Any, path: Path, names: list[str] | None = None) -> npt.NDArray[np.float64]:
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
                    raise DataError(f"{path}: {_which(i, names)} holds {shown}, which is not a number") from None
        raise


def _which(row: int, names: list[str] | None) -> str:
    return f"class {names[row]!r}" if names else f"row {row} (0-based)"
