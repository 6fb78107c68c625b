"""Class descriptions written by people: names, sentences or attribute tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.checks import check_descriptors, check_distinct
from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.images import class_folders, cub_attribute_names, read_cub_classes
from classnorm.data.names import find_attribute_names, match_names, readable_name, some_names
from classnorm.data.provenance import Provenance
from classnorm.data.table_files import (
    csv_rows,
    is_header,
    is_number,
    json_document,
    parquet_columns,
    read_descriptors,
    shortened,
    text_lines,
)
from classnorm.data.xlsa17 import read_splits
from classnorm.errors import DataError
from classnorm.io.arrays import read_npz, texts

_NAME_COLUMNS = ("name", "class", "class_name", "classname", "label", "species", "category")
_SUFFIXES = (".txt", ".csv", ".parquet", ".json", ".npz", ".npy")


@dataclass(frozen=True, eq=False)
class Descriptions:
    """Class names with either sentences or a table of numbers."""

    where: str  # for messages
    names: tuple[str, ...]
    sentences: tuple[tuple[str, ...], ...] = ()
    table: npt.NDArray[np.float32] | None = None  # [n_classes, d_a]
    columns: tuple[str, ...] = ()  # of the table
    provenance: Provenance = field(default_factory=Provenance)  # how the table was computed, if known

    @classmethod
    def of_names(cls, names: Iterable[str], where: str) -> Descriptions:
        """Describe each class by its readable name alone."""
        distinct = _distinct(names, where)
        return cls(where, distinct, tuple((readable_name(name),) for name in distinct))

    @classmethod
    def of_table(
        cls, names: Iterable[str], table: npt.ArrayLike, where: str, columns: Sequence[str] = ()
    ) -> Descriptions:
        """Describe each class by a row of numbers."""
        distinct = _distinct(names, where)
        checked = check_descriptors(table, distinct, where)
        return cls(where, distinct, (), checked, tuple(columns) or tuple(f"a{i}" for i in range(checked.shape[1])))

    @property
    def notices(self) -> list[str]:
        """Warnings about valid descriptions."""
        notices = []
        if names := self._first_equal(readable_name(name).casefold() for name in self.names):
            notices.append(f"{self.where}: {some_names(names)} differ only in spelling; are they one class?")
        rows = self.sentences if self.table is None else [row.tobytes() for row in self.table]
        if names := self._first_equal(rows):
            notices.append(f"{self.where}: {some_names(names)} have the same description and cannot be distinguished")
        if self.table is not None and len(self.table) > 1:
            constant = np.flatnonzero((self.table == self.table[0]).all(axis=0))
            if len(constant):
                columns = some_names([self.columns[i] for i in constant])
                notices.append(f"{self.where}: the same for all classes, so of no use: {columns}")
        return notices

    def _first_equal(self, keys: Iterable[object]) -> list[str]:
        """Return the names of the first classes with equal keys."""
        groups: dict[object, list[str]] = {}
        for name, key in zip(self.names, keys, strict=True):
            groups.setdefault(key, []).append(name)
        return next((names for names in groups.values() if len(names) > 1), [])


def read_descriptions(source: str | Path, *, numbers: bool = False) -> Descriptions:
    """Read class descriptions.

    - `.txt`: one class name per line.
    - `.csv`, `.parquet`: the class name in the first column; in the others either sentences, in any number of columns
      and rows per class, or numbers. A CSV file of sentences needs a header that starts with ``name`` or ``class``.
    - `.json`: ``{name: sentence}``, ``{name: [sentences]}``, ``{name: [numbers]}`` or ``[names]``.
    - `.npz`, `.npy`: descriptors (see `read_descriptors`).
    - a folder with one folder per class, CUB's folder, a GBU folder or an `.npz` bundle: its class names or, if
      `numbers`, its attributes.
    """
    path = Path(source)
    if path.is_dir():
        descriptions = _of_folder(path, numbers)
    elif not path.is_file():
        raise DataError(f"{path}: no such file or folder; use {', '.join(_SUFFIXES)}, or a folder")
    elif path.suffix.lower() not in _SUFFIXES:
        raise DataError(f"{path}: no descriptions in this type of file; use {', '.join(_SUFFIXES)}, or a folder")
    else:
        readers = {".csv": _of_csv, ".parquet": _of_parquet, ".json": _of_json}
        content = read_npz(path, ("class_names",), ("labels",)) if path.suffix.lower() == ".npz" else {}
        if "labels" in content and not numbers:  # a bundle
            descriptions = Descriptions.of_names(texts(content["class_names"]), str(path))
        elif path.suffix.lower() == ".txt":
            descriptions = Descriptions.of_names(text_lines(path), str(path))
        else:
            descriptions = readers.get(path.suffix.lower(), _of_descriptors)(path)
    if numbers and descriptions.table is None:
        raise DataError(f"{path}: holds no numbers; an attribute table has a class name and numbers in each row")
    return descriptions


def with_descriptors(dataset: ZeroShotDataset, path: Path) -> ZeroShotDataset:
    """The dataset with the descriptors of a file instead of its own; classes match by name."""
    table = read_descriptors(path)
    order = match_names(dataset.class_names, dataset.name, list(table), str(path))
    rows = np.stack(list(table.values()))[order].astype(np.float32)
    provenance = dataset.provenance | {"attributes": path.stem}
    return replace(dataset, descriptors=rows, provenance=provenance, attribute_names=None)


def _distinct(names: Iterable[str], where: str) -> tuple[str, ...]:
    distinct = tuple(str(name).strip() for name in names)
    if not distinct:
        raise DataError(f"{where}: holds no class; it needs one per line, row or folder")
    if "" in distinct:
        raise DataError(f"{where}: class {distinct.index('') + 1} has no name; fill it in")
    check_distinct(distinct, where)
    return distinct


def _of_folder(path: Path, numbers: bool) -> Descriptions:
    names: Sequence[str]
    table: npt.NDArray[Any] | None
    columns: tuple[str, ...] | None = None
    if (path / "att_splits.mat").is_file():
        names, table, _ = read_splits(path)
        columns = find_attribute_names(path, table.shape[1]) if numbers else None
    elif (path / "classes.txt").is_file() and (path / "images.txt").is_file():
        names, table = read_cub_classes(path)
        columns = cub_attribute_names(path, table.shape[1]) if numbers and table is not None else None
    else:
        names, table = [folder.name for folder in class_folders(path)], None
    if numbers and table is not None:
        return Descriptions.of_table(names, table, str(path), columns or ())
    return Descriptions.of_names(names, str(path))


def _of_descriptors(path: Path, columns: Sequence[str] = ()) -> Descriptions:
    table = read_descriptors(path)
    content = read_npz(path, (), ("columns", "attribute_names", "provenance")) if path.suffix.lower() == ".npz" else {}
    provenance = Provenance.from_array(content.get("provenance"), path).of_descriptors
    for key in ("attribute_names", "columns"):
        columns = texts(content[key]) if key in content else columns
    descriptions = Descriptions.of_table(table, np.stack(list(table.values())), str(path), columns)
    return replace(descriptions, provenance=provenance)


def _of_csv(path: Path) -> Descriptions:
    rows = csv_rows(path)
    cells = [cell for row in rows[1:] or rows for cell in row[1:] if cell.strip()]
    if cells and sum(map(is_number, cells)) >= len(cells) / 2:
        return _of_descriptors(path, rows[0][1:] if is_header(rows[0]) else ())
    if rows[0][0].strip().casefold() not in _NAME_COLUMNS:
        raise DataError(
            f"{path}: the first line must name the columns, the first of them name or class, not "
            f"{shortened(rows[0][0])}; for example name,description (separator: comma, semicolon or tab)"
        )
    for number, row in enumerate(rows, start=1):
        if len(row) > len(rows[0]):
            raise DataError(
                f"{path}: row {number} ({shortened(row[0])}) has {len(row)} cells, the first line names "
                f"{len(rows[0])}; put sentences with commas in quotes"
            )
    if len(rows[0]) == 1 and all(len(row) == 1 for row in rows):
        return Descriptions.of_names([row[0] for row in rows[1:]], str(path))
    return _of_sentences([(row[0], row[1:]) for row in rows[1:]], str(path))


def _of_parquet(path: Path) -> Descriptions:
    columns = parquet_columns(path)
    names = [name for name, _ in columns]
    is_numeric = [values.dtype.kind in "fiub" for _, values in columns]
    if not columns or is_numeric[0]:
        raise DataError(f"{path}: the first column must contain class names")
    if len(columns) == 1:
        return Descriptions.of_names(map(str, columns[0][1]), str(path))
    if all(is_numeric[1:]):
        return _of_descriptors(path, names[1:])
    if any(is_numeric):
        raise DataError(
            f"{path}: the column {names[is_numeric.index(True)]!r} contains numbers and "
            f"{names[1 + is_numeric[1:].index(False)]!r} text; put sentences and attributes in two files"
        )
    rows = zip(*(values for _, values in columns), strict=True)
    return _of_sentences(
        [(str(name), ["" if cell is None else str(cell) for cell in row]) for name, *row in rows], str(path)
    )


def _of_json(path: Path) -> Descriptions:
    document: Any = json_document(path)
    if isinstance(document, list) and all(isinstance(name, str) for name in document):
        return Descriptions.of_names(document, str(path))
    if not isinstance(document, tuple):
        raise DataError(
            f'{path}: must contain {{"class name": "sentence", …}}, lists of sentences or numbers, or names'
        )
    entries = [(name, [value] if isinstance(value, str) else value) for name, value in document]
    for name, values in entries:
        if not isinstance(values, list) or not values:
            raise DataError(f"{path}: class {name!r} must be a sentence, a list of sentences or a list of numbers")
    if entries and not any(isinstance(value, str) for _, values in entries for value in values):
        return _of_descriptors(path)
    for name, values in entries:
        if not all(isinstance(value, str) for value in values):
            raise DataError(f"{path}: class {name!r} has numbers where others have sentences; use one kind for all")
    _distinct([name for name, _ in entries], str(path))
    return _of_sentences(entries, str(path))


def _of_sentences(rows: Sequence[tuple[str, Sequence[str]]], where: str) -> Descriptions:
    """Collect the distinct sentences of each class; its rows need not be adjacent."""
    classes: dict[str, dict[str, None]] = {}
    for name, cells in rows:
        sentences = (" ".join(cell.split()) for cell in cells if cell.strip())
        classes.setdefault(name.strip(), {}).update(dict.fromkeys(sentences))
    names = _distinct(classes, where)
    empty = [name for name, sentences in classes.items() if not sentences]
    if empty:
        raise DataError(f"{where}: class {empty[0]!r} has no description; write a sentence about it")
    return Descriptions(where, names, tuple(tuple(sentences) for sentences in classes.values()))
