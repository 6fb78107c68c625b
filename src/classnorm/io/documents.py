"""JSON documents from disk. Their content is not trusted: size, depth, types and ranges are checked when they are read.

The shape of a document is a type: a `TypedDict`, whose keys are needed unless they are `NotRequired` (others may be
present), `list[...]`, `dict[str, ...]`, `Literal`, unions, `Any`, and `Annotated[int, Within(...)]`. Integers have 64
bits, floats are finite, and texts can be encoded.
"""

from __future__ import annotations

import json
import math
import os
import stat
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, Union

from classnorm.errors import ClassNormError, DataError

MOST_BYTES = 1 << 28
"""Of a document: the names of a few million classes."""
_DEPTH = 32
_SHOWN = 60  # characters of a wrong value in a message


@dataclass(frozen=True)
class Within:
    """Within of a number."""

    low: float
    high: float = math.inf


Count: TypeAlias = Annotated[int, Within(0)]
Positive: TypeAlias = Annotated[int, Within(1)]


class _WrongShapeError(Exception):
    """The value at some key is not what it must be."""


def read_json(path: Path, shape: Any, remedy: str, error: type[ClassNormError] = DataError) -> Any:
    """Read a JSON document and check its shape; an error names the file, the key, and what must be there."""
    return parse_json(read_regular(path, remedy, error), shape, str(path), remedy, error)


def parse_json(
    content: bytes | str, shape: Any, where: str, remedy: str, error: type[ClassNormError] = DataError
) -> Any:
    """Parse a JSON document and check its shape."""
    try:
        document = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        reason = "nested too deeply" if isinstance(problem, RecursionError) else problem
        raise error(f"{where}: not readable as JSON ({reason}); {remedy}") from problem
    check_shape(document, shape, where, remedy, error)
    return document


def check_shape(value: Any, shape: Any, where: str, remedy: str, error: type[ClassNormError] = DataError) -> None:
    """Raise if a document does not have the shape."""
    try:
        _check(value, shape, "", 0)
    except _WrongShapeError as problem:
        raise error(f"{where}: {problem}; {remedy}") from None


def read_regular(path: Path, remedy: str, error: type[ClassNormError] = DataError, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file of bounded size. Opening a pipe or a device would wait or never end."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise error(f"{path}: not a regular file; {remedy}")
            if status.st_size > most:
                raise error(f"{path}: {status.st_size / 2**20:.0f} MB, more than any such file has; {remedy}")
            return file.read(status.st_size)
    except FileNotFoundError:
        raise error(f"{path}: no such file; {remedy}") from None
    except (OSError, ValueError) as problem:  # a path with a null byte is a ValueError
        raise error(f"{path}: not readable ({getattr(problem, 'strerror', None) or problem}); {remedy}") from problem


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer would wait


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _check(value: Any, shape: Any, key: str, depth: int) -> None:
    if depth > _DEPTH:
        raise _WrongShapeError(f"{key[:_SHOWN]} is nested too deeply")
    ranges = []
    while (origin := typing.get_origin(shape)) in (Annotated, NotRequired):
        shape, *limits = typing.get_args(shape)
        ranges += limits
    arguments = typing.get_args(shape)
    if shape is Any:
        _check_any(value, key, depth)
    elif origin is Literal:
        if not any(value == option and type(value) is type(option) for option in arguments):
            raise _wrong(key, value, f"one of {', '.join(map(str, arguments))}")
    elif origin in (Union, types.UnionType):
        _check_union(value, arguments, key, depth)
    elif origin is list:
        if not isinstance(value, list):
            raise _wrong(key, value, "a list")
        for number, entry in enumerate(value):
            _check(entry, arguments[0], f"{key}[{number}]", depth + 1)
    elif origin is dict or typing.is_typeddict(shape):
        if not isinstance(value, dict):
            raise _wrong(key, value, "an object")
        for name, hint in _fields(value, shape, arguments, key):
            _check(value[name], hint, f"{key}.{name}".lstrip("."), depth + 1)
    else:
        _check_leaf(value, shape, key)
    for allowed in ranges:
        _check_range(value, allowed, key)


def _fields(value: dict[str, Any], shape: Any, arguments: tuple[Any, ...], key: str) -> Iterator[tuple[str, Any]]:
    """The fields of an object that must have a shape, with their shapes."""
    if not typing.is_typeddict(shape):
        for name in value:
            _check_leaf(name, str, key)
            yield name, arguments[1]
        return
    for name, hint in typing.get_type_hints(shape, include_extras=True).items():
        if name in value:
            yield name, hint
        elif typing.get_origin(hint) is not NotRequired:
            raise _WrongShapeError(f"{f'{key}.{name}'.lstrip('.')} is missing")


def _check_any(value: Any, key: str, depth: int) -> None:
    """Of a value without a shape, only the depth, and its texts and numbers."""
    waiting = [(value, key, depth)]
    while waiting:
        value, key, depth = waiting.pop()
        if depth > _DEPTH:
            raise _WrongShapeError(f"{key[:_SHOWN]} is nested too deeply")
        if isinstance(value, list):
            waiting += [(entry, f"{key}[{number}]", depth + 1) for number, entry in enumerate(value)]
        elif isinstance(value, dict):
            for name in value:
                _check_leaf(name, str, key)
            waiting += [(entry, f"{key}.{name}".lstrip("."), depth + 1) for name, entry in value.items()]
        else:
            _check_leaf(value, type(value), key)


def _check_union(value: Any, shapes: tuple[Any, ...], key: str, depth: int) -> None:
    problems = []
    for shape in shapes:
        try:
            _check(value, shape, key, depth)
            return
        except _WrongShapeError as problem:
            problems.append(problem)
    if (
        value is not None
        and len(named := [p for s, p in zip(shapes, problems, strict=True) if s is not type(None)]) == 1
    ):
        raise named[0]
    raise _wrong(key, value, " or ".join(_name(shape) for shape in shapes))


def _check_leaf(value: Any, shape: Any, key: str) -> None:
    if shape in (None, type(None)):
        fits = value is None
    elif shape is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1023
    elif shape is int:
        fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    else:
        fits = isinstance(value, shape)
    if not fits:
        raise _wrong(key, value, _name(shape))
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _WrongShapeError(f"{key.encode('ascii', 'replace').decode() or 'a key'} holds half a character")


def _check_range(value: Any, allowed: Within, key: str) -> None:
    if not allowed.low <= value <= allowed.high:
        bounds = f"at least {allowed.low:g}" if allowed.high == math.inf else f"{allowed.low:g} to {allowed.high:g}"
        raise _wrong(key, value, bounds)


def _wrong(key: str, value: Any, expected: str) -> _WrongShapeError:
    shown = ascii(value) if isinstance(value, str) else json.dumps(value)[: 2 * _SHOWN]
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return _WrongShapeError(f"{key[-_SHOWN:] or 'the document'} is {shown}, but must be {expected}")


_NAMES = {
    str: "a text",
    int: "an integer of 64 bits",
    float: "a finite number",
    bool: "true or false",
    type(None): "null",
}


def _name(shape: Any) -> str:
    return _NAMES.get(shape) or (_name(typing.get_args(shape)[0]) if typing.get_args(shape) else "an object")
