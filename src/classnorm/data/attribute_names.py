"""Names of attributes: the columns of a descriptor table in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from classnorm.data.provenance import Provenance
from classnorm.errors import DataError, nearest

TEXT = "the text"
"""Name of all dimensions of an encoded text, which mean nothing one by one."""

_FILES = ("attributes.txt", "attributes/attributes.txt", "predicates.txt")  # of CUB and AwA, as published


def find_attribute_names(folder: Path, d_a: int) -> tuple[str, ...] | None:
    """Read the names from the file of CUB (`attributes.txt`) or AwA (`predicates.txt`) in a folder, if it is there."""
    path = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    return None if path is None else check_attribute_names(read_attribute_names(path), d_a, str(path))


def read_attribute_names(path: Path) -> tuple[str, ...]:
    """Read one name per line; lines may be numbered: ``1 has_bill_shape::curved``."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as UTF-8 text ({error})") from error
    cells = [line.split(maxsplit=1) for line in lines]
    if all(len(cell) == 2 and cell[0] == str(number) for number, cell in enumerate(cells, start=1)):
        lines = [text for _, text in cells]
    return tuple(map(readable_attribute, lines))


def readable_attribute(name: str) -> str:
    """Format the name of an attribute as plain text.

    >>> readable_attribute("has_bill_shape::curved_(up_or_down)")
    'bill shape: curved (up or down)'
    """
    return " ".join(name.removeprefix("has_").replace("::", ": ").replace("_", " ").split()) or name


def attributes_of_columns(columns: Sequence[str], provenance: Provenance) -> tuple[str, ...] | None:
    """Return the names of attributes from the columns of a table; None if the columns are only numbered.

    Args:
        provenance: of the table; names the text encoders, whose columns are `TEXT`.

    >>> attributes_of_columns(["stripes", "minilm_0", "minilm_1"], Provenance.of(text_encoder={"name": "minilm"}))
    ('stripes', 'the text', 'the text')
    """
    if all(column == f"a{i}" for i, column in enumerate(columns)):
        return None
    encoders = [(source.text_encoder or {}).get("name", "") for source in (provenance, provenance.joined)]
    prefixes = tuple(f"{str(name).removeprefix('hf:')}_" for name in encoders if name)
    of_text = [column.startswith(prefixes) and column.rpartition("_")[2].isdecimal() for column in columns]
    return tuple(TEXT if is_text else column for column, is_text in zip(columns, of_text, strict=True))


def attribute_order(columns: Sequence[str], names: Sequence[str], where: str) -> list[int] | None:
    """Return the column of each attribute, by name; None if columns are only numbered, or attributes share a name.

    Args:
        columns: of a table of descriptors.
        names: of the attributes, as a model knows them.
        where: the table, for messages.

    >>> attribute_order(["has_tail", "Stripes"], ["stripes", "tail"], "new.csv")
    [1, 0]
    """
    position = {_key(column): i for i, column in enumerate(columns)}
    known = {_key(name): name for name in names}
    if len(known) < len(names):
        return None
    if position.keys() == known.keys() and len(columns) == len(names):
        return [position[key] for key in known]
    stems = {re.sub(r"\d+$", "", column) for column in columns}
    if len(stems) == 1 and stems.isdisjoint(columns):
        return None
    unknown = next((column for column in columns if _key(column) not in known), None)
    if unknown is not None:
        near = nearest(_key(unknown), known)
        hint = f"did you mean {known[near]!r}? Correct" if near is not None else "correct"
        raise DataError(
            f"{where}: the column {unknown!r} is no attribute of the model; {hint} the name, or number all columns if "
            "they are in the order of the model"
        )
    missing = next((name for key, name in known.items() if key not in position), None)
    if missing is not None:
        raise DataError(f"{where}: there is no column for the attribute {missing!r} of the model; add it")
    raise DataError(f"{where}: {len(columns)} columns for the {len(names)} attributes of the model; name each one once")


def _key(name: str) -> str:
    return readable_attribute(name).casefold()


def check_attribute_names(names: Sequence[str], d_a: int, where: str) -> tuple[str, ...]:
    """Raise a `DataError` unless there is a name per dimension of the descriptors."""
    if len(names) != d_a:
        raise DataError(f"{where}: {len(names)} names of attributes for descriptors of {d_a} dimensions; give one each")
    return tuple(map(str, names))
