"""Names of classes and attributes: when two spellings are one name, and the files that list names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from classnorm.data.provenance import Provenance
from classnorm.data.table_files import is_number, text_lines
from classnorm.errors import DataError, nearest

TEXT = "the text"
"""Name of all dimensions of an encoded text, which mean nothing one by one."""

_ATTRIBUTE_FILES = ("attributes.txt", "attributes/attributes.txt", "predicates.txt")  # of CUB and AwA, as published
_SHOWN = 3  # names in a message
_COMPARED = 200_000  # pairs of names: about a second


def readable_name(name: str) -> str:
    """Format a class name as plain text: drop a leading number and dot, replace _, - and + by spaces.

    >>> readable_name("001.Black_footed_Albatross")
    'Black footed Albatross'
    """
    return " ".join(re.sub(r"[_+-]", " ", re.sub(r"^\d+\.", "", name)).split()) or name


def readable_attribute(name: str) -> str:
    """Format the name of an attribute as plain text.

    >>> readable_attribute("has_bill_shape::curved_(up_or_down)")
    'bill shape: curved (up or down)'
    """
    return " ".join(name.removeprefix("has_").replace("::", ": ").replace("_", " ").split()) or name


class KnownNames:
    """Names that others are compared with: equal to the letter, or else as plain lower-case text."""

    def __init__(self, names: Iterable[str], plain: Callable[[str], str] = readable_name) -> None:
        self.plain = plain
        self.positions = {name: position for position, name in enumerate(names)}
        self.spellings: dict[str, list[str]] = {}
        """Plain lower-case text → the names that it stands for."""
        for name in self.positions:
            self.spellings.setdefault(self.spelling(name), []).append(name)

    def spelling(self, name: str) -> str:
        """What all spellings of a name have in common."""
        return self.plain(name).casefold()

    def __contains__(self, name: str) -> bool:
        """Whether the name is known in any spelling."""
        return self.spelling(name) in self.spellings

    def same(self, name: str) -> list[str]:
        """The name itself if it is known, or else all known spellings of it."""
        return [name] if name in self.positions else self.spellings.get(self.spelling(name), [])

    def nearest(self, name: str, among: Iterable[str] | None = None) -> str | None:
        """The known name that is mistyped as this one, if there is one; of all, or of those with these spellings."""
        near = nearest(self.spelling(name), self.spellings if among is None else among)
        return None if near is None else self.spellings[near][0]


def match_names(names: Sequence[str], source: str, known: Sequence[str], where: str) -> list[int]:
    """Return the index in `known` (from `where`) of each of `names` (from `source`).

    Names match if they are equal as readable lower-case text: 001.Black_footed_Albatross is "black-footed albatross".
    """
    index = KnownNames(known)
    matches = [index.same(name) for name in names]
    missing = [name for name, same in zip(names, matches, strict=True) if not same]
    if missing:
        near = index.nearest(missing[0])
        hint = f"did you mean {near!r}? Add" if near is not None else "add"
        rest = f" and of {len(missing) - 1} more ({some_names(missing[1:])})" if len(missing) > 1 else ""
        raise DataError(
            f"{where}: no description of the class {missing[0]!r}{rest} of {source}; {hint} it, or correct the name"
        )
    for name, same in zip(names, matches, strict=True):
        if len(same) > 1:
            raise DataError(f"{where}: {some_names(same)} all match the class {name!r} of {source}; use the exact name")
    matched = [first for first, *_ in matches]
    repeated = [name for name, count in Counter(matched).items() if count > 1]
    if repeated:
        alike = some_names([name for name, match in zip(names, matched, strict=True) if match == repeated[0]])
        raise DataError(f"{source}: {alike} all match the class {repeated[0]!r} of {where}; merge them")
    return [index.positions[name] for name in matched]


def respelled(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Replace each of `names` by the one of `known` that is the same name in another spelling, if there is one.

    Numbers and single letters have one spelling: "a" and "A", "1" and "-1" are different classes.

    >>> respelled(["014.Indigo_bunting", "Okapi"], ["Painted Bunting", "Indigo Bunting"])
    ['Indigo Bunting', 'Okapi']
    """
    index = KnownNames(known)

    def spelled(name: str) -> str:
        same = [] if is_number(name) or len(index.spelling(name)) < 2 else index.same(name)
        return same[0] if len(same) == 1 else name  # of several, `known` tells spellings apart

    return [spelled(name) for name in names]


def lookalike(names: Iterable[str], known: Collection[str]) -> tuple[str, str] | None:
    """The first of `names` that is unknown but looks like one of `known`, and that one. Names with different numbers
    never look alike.

    Of very many names, only the first are compared.

    >>> lookalike(["okapi", "Indigo_buntnig"], ["Painted Bunting", "Indigo Bunting"])
    ('Indigo_buntnig', 'Indigo Bunting')
    """
    index = KnownNames(known)
    new = [name for name in dict.fromkeys(names) if name not in index]
    numbers = {spelling: _numbers(spelling) for spelling in index.spellings} if new else {}
    for name in new[: 1 + _COMPARED // (1 + len(numbers))]:
        own = _numbers(name)
        near = index.nearest(name, [spelling for spelling, theirs in numbers.items() if theirs == own])
        if near is not None:
            return name, near
    return None


def _numbers(name: str) -> list[str]:
    return [digits.lstrip("0") for digits in re.findall("[0-9]+", name)]


def some_names(names: Sequence[str]) -> str:
    """A few names, for a message."""
    return ", ".join(map(repr, names[:_SHOWN])) + (f", … ({len(names)} in all)" if len(names) > _SHOWN else "")


def find_attribute_names(folder: Path, d_a: int) -> tuple[str, ...] | None:
    """Read the names from the file of CUB (`attributes.txt`) or AwA (`predicates.txt`) in a folder, if it is there."""
    path = next((folder / name for name in _ATTRIBUTE_FILES if (folder / name).is_file()), None)
    return None if path is None else check_attribute_names(read_attribute_names(path), d_a, str(path))


def read_attribute_names(path: Path) -> tuple[str, ...]:
    """Read one name per line; lines may be numbered: ``1 has_bill_shape::curved``."""
    lines = text_lines(path)
    cells = [line.split(maxsplit=1) for line in lines]
    if all(len(cell) == 2 and cell[0] == str(number) for number, cell in enumerate(cells, start=1)):
        lines = [text for _, text in cells]
    return tuple(map(readable_attribute, lines))


def check_attribute_names(names: Sequence[str], d_a: int, where: str) -> tuple[str, ...]:
    """Raise a `DataError` unless there is a name per dimension of the descriptors."""
    if len(names) != d_a:
        raise DataError(f"{where}: {len(names)} names of attributes for descriptors of {d_a} dimensions; give one each")
    return tuple(map(str, names))


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
    given, known = KnownNames(columns, readable_attribute), KnownNames(names, readable_attribute)
    if len(known.spellings) < len(names):
        return None
    if given.spellings.keys() == known.spellings.keys() and len(columns) == len(names):
        return [given.positions[given.same(name)[0]] for name in names]
    stems = {re.sub(r"\d+$", "", column) for column in columns}
    if len(stems) == 1 and stems.isdisjoint(columns):
        return None
    unknown = next((column for column in columns if column not in known), None)
    if unknown is not None:
        near = known.nearest(unknown)
        hint = f"did you mean {near!r}? Correct" if near is not None else "correct"
        raise DataError(
            f"{where}: the column {unknown!r} is no attribute of the model; {hint} the name, or number all columns if "
            "they are in the order of the model"
        )
    missing = next((name for name in names if name not in given), None)
    if missing is not None:
        raise DataError(f"{where}: there is no column for the attribute {missing!r} of the model; add it")
    raise DataError(f"{where}: {len(columns)} columns for the {len(names)} attributes of the model; name each one once")
