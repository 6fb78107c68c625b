"""Classes and what is said of them, by people: a list of names, sentences, a table of attributes, or a dataset."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.bundle import provenance_of, read_npz, texts
from classnorm.data.cub import read_cub_classes
from classnorm.data.dataset import check_descriptors, check_distinct
from classnorm.data.images import class_folders
from classnorm.data.table_files import (
    csv_rows,
    is_header,
    is_number,
    json_document,
    parquet_columns,
    read_descriptors,
    text_lines,
)
from classnorm.data.xlsa17 import read_splits
from classnorm.errors import DataError

__all__ = ["Descriptions", "match_names", "read_descriptions", "readable_name"]

_NAME_COLUMNS = ("name", "class", "class_name", "classname", "label", "species", "category")
_SUFFIXES = (".txt", ".csv", ".parquet", ".json", ".npz", ".npy")
_PROVENANCE = ("attributes", "text_encoder", "templates", "joined")  # of descriptors; a bundle tells of features, too
_SHOWN = 3  # names in a message


@dataclass(frozen=True, eq=False)
class Descriptions:
    """Either sentences of each class or a table of numbers."""

    where: str  # for messages
    names: tuple[str, ...]
    sentences: tuple[tuple[str, ...], ...] = ()
    table: npt.NDArray[np.float32] | None = None  # [n_classes, d_a]
    columns: tuple[str, ...] = ()  # of the table
    provenance: dict[str, str] = field(default_factory=dict)  # where a table says how it was made

    @classmethod
    def of_names(cls, names: Iterable[str], where: str) -> Descriptions:
        """The names, made readable, are all that is said."""
        distinct = _distinct(names, where)
        return cls(where, distinct, tuple((readable_name(name),) for name in distinct))

    @classmethod
    def of_table(
        cls, names: Iterable[str], table: npt.ArrayLike, where: str, columns: Sequence[str] = ()
    ) -> Descriptions:
        distinct = _distinct(names, where)
        checked = check_descriptors(table, distinct, where)
        return cls(where, distinct, (), checked, tuple(columns) or tuple(f"a{i}" for i in range(checked.shape[1])))

    @property
    def notices(self) -> list[str]:
        """What is legal but worth knowing."""
        notices = []
        alike: dict[str, list[str]] = {}
        for name in self.names:
            alike.setdefault(_key(name), []).append(name)
        twice = [names for names in alike.values() if len(names) > 1]
        if twice:
            notices.append(f"{self.where}: {_some(twice[0])} differ in spelling only; are they one class?")
        said: dict[object, list[str]] = {}
        rows = self.sentences if self.table is None else [row.tobytes() for row in self.table]
        for name, row in zip(self.names, rows, strict=True):
            said.setdefault(row, []).append(name)
        same = [names for names in said.values() if len(names) > 1]
        if same:
            notices.append(f"{self.where}: {_some(same[0])} have the same description: nothing tells them apart")
        if self.table is not None and len(self.table) > 1:
            constant = np.flatnonzero((self.table == self.table[0]).all(axis=0))
            if len(constant):
                some = _some([self.columns[i] for i in constant])
                notices.append(f"{self.where}: the same for all classes, so of no use: {some}")
        return notices


def read_descriptions(source: str | Path, *, numbers: bool = False) -> Descriptions:
    """What a source says of its classes.

    - `.txt`: a class name a line.
    - `.csv`, `.parquet`: the class name in the first column; sentences in the others, of which there may be several
      columns and several rows a class, or nothing but numbers, an attribute table. Sentences need a first line that
      names the columns, the first of them ``name`` or ``class``.
    - `.json`: ``{name: sentence}``, ``{name: [sentences]}``, ``{name: [numbers]}`` or ``[names]``.
    - `.npz`, `.npy`: descriptors (see `read_descriptors`).
    - a folder with a folder per class, CUB's own layout, a GBU folder or an `.npz` bundle: the names of its classes,
      or with `numbers` the attributes that it has.

    Raises:
        DataError: in one line, what is wrong, where, and what to do.
    """
    path = Path(source)
    if path.is_dir():
        found = _of_folder(path, numbers)
    elif not path.is_file():
        raise DataError(f"{path}: no such file or folder; descriptions come as {', '.join(_SUFFIXES)} or a folder")
    elif path.suffix.lower() not in _SUFFIXES:
        raise DataError(f"{path}: classes cannot be read from such a file; use {', '.join(_SUFFIXES)}, or a folder")
    else:
        readers = {".txt": _of_text, ".csv": _of_csv, ".parquet": _of_parquet, ".json": _of_json}
        bundle = path.suffix.lower() == ".npz" and "labels" in read_npz(path, ("class_names",), ("labels",))
        if bundle and not numbers:
            found = Descriptions.of_names(texts(read_npz(path, ("class_names",))["class_names"]), str(path))
        else:
            found = readers.get(path.suffix.lower(), _of_descriptors)(path)
    if numbers and found.table is None:
        raise DataError(f"{path}: holds no numbers; an attribute table has a class name and then numbers in each row")
    return found


def readable_name(name: str) -> str:
    """A class name as people write it: without a leading number and dot, and _, - and + as spaces.

    >>> readable_name("001.Black_footed_Albatross")
    'Black footed Albatross'
    """
    return " ".join(re.sub(r"[_+-]", " ", re.sub(r"^\d+\.", "", name)).split()) or name


def match_names(wanted: Sequence[str], of: str, known: Sequence[str], where: str) -> list[int]:
    """The place in `known` of each wanted class of the source `of`.

    A name counts as the same if it is when both are made readable and in small letters: 001.Black_footed_Albatross is
    "black-footed albatross".
    """
    exact = {name: i for i, name in enumerate(known)}
    loose: dict[str, list[int]] = {}
    for name, i in exact.items():
        loose.setdefault(_key(name), []).append(i)
    found = [[exact[name]] if name in exact else loose.get(_key(name), []) for name in wanted]
    missing = [name for name, places in zip(wanted, found, strict=True) if not places]
    if missing:
        near = difflib.get_close_matches(_key(missing[0]), loose, n=1, cutoff=0.6)
        hint = f"did you mean {known[loose[near[0]][0]]!r}? " if near else ""
        more = f" and of {len(missing) - 1} more ({_some(missing[1:])})" if len(missing) > 1 else ""
        raise DataError(
            f"{where}: no description of the class {missing[0]!r}{more} of {of}; {hint}Add it, or spell it alike"
        )
    for name, places in zip(wanted, found, strict=True):
        if len(places) > 1:
            raise DataError(
                f"{where}: {_some([known[i] for i in places])} may each be the class {name!r} of {of}; spell it alike"
            )
    places = [first for first, *_ in found]
    twice = [place for place, count in Counter(places).items() if count > 1]
    if twice:
        same = _some([name for name, place in zip(wanted, places, strict=True) if place == twice[0]])
        raise DataError(f"{of}: {same} are the one class {known[twice[0]]!r} of {where}; make one of them")
    return places


def _key(name: str) -> str:
    return readable_name(name).casefold()


def _some(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def _distinct(names: Iterable[str], where: str) -> tuple[str, ...]:
    distinct = tuple(str(name).strip() for name in names)
    if not distinct:
        raise DataError(f"{where}: holds no class; give one a line, a row or a folder")
    if "" in distinct:
        raise DataError(f"{where}: class {distinct.index('') + 1} has no name; fill it in")
    check_distinct(distinct, where)
    return distinct


def _of_folder(path: Path, numbers: bool) -> Descriptions:
    if (path / "att_splits.mat").is_file():
        names, table, _ = read_splits(path)
        return Descriptions.of_table(names, table, str(path)) if numbers else Descriptions.of_names(names, str(path))
    if (path / "classes.txt").is_file() and (path / "images.txt").is_file():
        classes, attributes = read_cub_classes(path)
        if numbers and attributes is not None:
            return Descriptions.of_table(classes, attributes, str(path))
        return Descriptions.of_names(classes, str(path))
    return Descriptions.of_names([folder.name for folder in class_folders(path)], str(path))


def _of_text(path: Path) -> Descriptions:
    return Descriptions.of_names(text_lines(path), str(path))


def _of_descriptors(path: Path, columns: Sequence[str] = ()) -> Descriptions:
    table = read_descriptors(path)
    found = Descriptions.of_table(table, np.stack(list(table.values())), str(path), columns)
    if path.suffix.lower() != ".npz":
        return found
    content = read_npz(path, (), ("columns", "provenance"))
    provenance = {key: text for key, text in provenance_of(content, path).items() if key in _PROVENANCE}
    return replace(
        found,
        columns=tuple(texts(content["columns"])) if "columns" in content else found.columns,
        provenance=provenance,
    )


def _of_csv(path: Path) -> Descriptions:
    rows = csv_rows(path)
    cells = [cell for row in rows[1:] or rows for cell in row[1:] if cell.strip()]
    if cells and sum(map(is_number, cells)) >= len(cells) / 2:
        return _of_descriptors(path, rows[0][1:] if is_header(rows[0]) else ())
    if rows[0][0].strip().casefold() not in _NAME_COLUMNS:
        raise DataError(
            f"{path}: the first line must name the columns, the first of them name or class, not {rows[0][0]!r}; "
            "put name,description there"
        )
    long = next((number for number, row in enumerate(rows, start=1) if len(row) > len(rows[0])), None)
    if long is not None:
        raise DataError(
            f"{path}: row {long} ({rows[long - 1][0]!r}) has {len(rows[long - 1])} cells, the first line names "
            f"{len(rows[0])}; put sentences with commas in quotes"
        )
    if len(rows[0]) == 1 and all(len(row) == 1 for row in rows):
        return Descriptions.of_names([row[0] for row in rows[1:]], str(path))
    return _of_sentences([(row[0], row[1:]) for row in rows[1:]], str(path))


def _of_parquet(path: Path) -> Descriptions:
    columns = parquet_columns(path)
    names = [name for name, _ in columns]
    kinds = [values.dtype.kind in "fiub" for _, values in columns]
    if not columns or kinds[0]:
        raise DataError(f"{path}: the first column must hold class names")
    if len(columns) == 1:
        return Descriptions.of_names(map(str, columns[0][1]), str(path))
    if all(kinds[1:]):
        return _of_descriptors(path, names[1:])
    if any(kinds):
        raise DataError(
            f"{path}: the column {names[kinds.index(True)]!r} holds numbers and {names[1 + kinds[1:].index(False)]!r} "
            "text; give sentences and attributes in two files"
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
        raise DataError(f'{path}: must hold {{"class name": "sentence", …}}, lists of sentences or numbers, or a list')
    said = [(name, [value] if isinstance(value, str) else value) for name, value in document]
    for name, values in said:
        if not isinstance(values, list) or not values:
            raise DataError(f"{path}: class {name!r} must be a sentence, a list of sentences or a list of numbers")
    if said and not any(isinstance(value, str) for _, values in said for value in values):
        return _of_descriptors(path)
    for name, values in said:
        if not all(isinstance(value, str) for value in values):
            raise DataError(
                f"{path}: class {name!r} is not described by sentences, as others are; use one kind for all"
            )
    _distinct([name for name, _ in said], str(path))
    return _of_sentences(said, str(path))


def _of_sentences(rows: Sequence[tuple[str, Sequence[str]]], where: str) -> Descriptions:
    """Rows of one class need not be next to each other; a sentence that comes twice counts once."""
    said: dict[str, dict[str, None]] = {}
    for name, cells in rows:
        said.setdefault(name.strip(), {}).update(
            dict.fromkeys(" ".join(cell.split()) for cell in cells if cell.strip())
        )
    names = _distinct(said, where)
    for name, sentences in said.items():
        if not sentences:
            raise DataError(f"{where}: nothing is said of the class {name!r}; write a sentence about it")
    return Descriptions(where, names, tuple(tuple(sentences) for sentences in said.values()))
