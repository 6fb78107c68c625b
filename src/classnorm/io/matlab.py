"""MATLAB files: matrices of numbers and cell arrays of texts, of version 5 and 7.3.

Version 5 is read here and not by SciPy, whose reader crashes the process on some damaged files. Sizes are compared with
the file before anything is allocated.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError
from classnorm.io.arrays import check_regular, check_unpacked

Variable: TypeAlias = npt.NDArray[Any] | list[Any] | str
"""Numbers, the cells of a cell array, or a text."""
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_HEADER = 128  # bytes, at the start of a file
_MATRIX, _COMPRESSED = 14, 15  # types of elements
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {16: "utf-8", 17: "utf-16", 18: "utf-32", 1: "latin-1", 2: "latin-1", 3: "utf-16", 4: "utf-16"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_CELL, _CHAR = 1, 4
_PEEK = 1 << 10  # bytes that hold the name of a variable
_MOST_LETTERS = 1 << 16


def read_mat(
    path: Path, keys: Sequence[str], optional: Sequence[str] = (), max_bytes: int | None = None
) -> dict[str, Variable]:
    """Read variables of a MATLAB file (v5 or v7.3), in MATLAB's orientation."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            is_hdf5 = _HDF5_MAGIC in file.read(1024)  # v7.3 is HDF5 behind a 512-byte MATLAB header
        content = (_read_v73 if is_hdf5 else _read_v5)(path, {*keys, *optional}, max_bytes)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # h5py and zlib raise many types on a damaged file
        raise DataError(
            f"{path}: not a readable MATLAB file ({type(error).__name__}); it may be truncated, download it again"
        ) from error
    missing = [key for key in keys if key not in content]
    if missing:
        raise DataError(f"{path}: the variable {missing[0]!r} is missing; the file must contain {', '.join(keys)}")
    return content


@dataclass(frozen=True)
class _Part:
    """The elements in some bytes of a v5 file."""

    data: memoryview
    order: str
    """`<` or `>`."""

    def elements(self) -> Iterator[tuple[int, memoryview]]:
        """Type and content of each."""
        position = 0
        while position + 8 <= len(self.data):
            kind, length = struct.unpack_from(f"{self.order}II", self.data, position)
            if kind >> 16:  # a small element: type, length and content in 8 bytes
                kind, length, start, end = kind & 0xFFFF, kind >> 16, position + 4, position + 8
                if length > 4:
                    raise ValueError("a small element is too long")
            else:
                start = position + 8
                end = start + length if kind == _COMPRESSED else start + -(-length // 8) * 8
            if start + length > len(self.data):
                raise ValueError("an element ends after the file")
            yield kind, self.data[start : start + length]
            position = end

    def numbers(self, kind: int, content: memoryview) -> npt.NDArray[Any]:
        return np.frombuffer(content, np.dtype(_NUMBERS[kind]).newbyteorder(self.order))  # type: ignore[arg-type]


def _read_v5(path: Path, wanted: Collection[str], max_bytes: int | None) -> dict[str, Variable]:
    content: dict[str, Variable] = {}
    with path.open("rb") as file:
        header = file.read(_HEADER)
        if len(header) < _HEADER or header[126:128] not in (b"IM", b"MI"):
            raise ValueError("no header of version 5")
        order = "<" if header[126:128] == b"IM" else ">"
        data = np.memmap(path, np.uint8, "r", _HEADER).data if path.stat().st_size > _HEADER else memoryview(b"")
    for kind, element in _Part(data, order).elements():
        if kind == _COMPRESSED:
            start = zlib.decompressobj().decompress(element, _PEEK)
            kind, size = struct.unpack_from(f"{order}II", start)
            if kind != _MATRIX or _name(_Part(memoryview(start)[8:], order)) not in wanted:
                continue
            check_unpacked(path, size, len(element), max_bytes)
            element = memoryview(zlib.decompressobj().decompress(element, 8 + size))[8:]
        if kind == _MATRIX:
            name, variable = _matrix(_Part(element, order), wanted)
            if name in content:
                raise DataError(f"{path}: contains the variable {name!r} twice; write it again")
            if variable is not None:
                content[name] = variable
    return content


def _name(part: _Part) -> str:
    """The name of a matrix, of which only the start may be known."""
    elements = part.elements()
    next(elements), next(elements)  # flags and dimensions
    return bytes(next(elements)[1]).decode("latin-1")


def _matrix(part: _Part, wanted: Collection[str] | None = None) -> tuple[str, Variable | None]:
    """Name and value; None if the value is neither wanted nor of a known class."""
    elements = part.elements()
    try:
        flags = part.numbers(*next(elements))
        dimensions = [int(n) for n in part.numbers(*next(elements))]
        name = bytes(next(elements)[1]).decode("latin-1")
        if wanted is not None and name not in wanted:
            return name, None
        kind, is_complex = int(flags[0]) & 0xFF, bool(int(flags[0]) >> 8 & 8)
        if len(dimensions) < 2 or min(dimensions) < 0 or is_complex:
            raise ValueError("not a real matrix")
        n = math.prod(dimensions)
        if kind == _CELL:
            cells = [_matrix(_Part(content, part.order))[1] for number, content in elements if number == _MATRIX]
            if len(cells) != n:
                raise ValueError("cells are missing")
            return name, [cell[0] if isinstance(cell, list) and len(cell) == 1 else cell for cell in cells]
        if kind == _CHAR:
            return name, _text(*next(elements), part.order) if n else ""
        if kind not in _CLASSES:
            return name, None
        values = part.numbers(*next(elements)) if n else np.zeros(0)
        if len(values) != n:
            raise ValueError("values are missing")
        return name, values.astype(_CLASSES[kind], copy=False).reshape(dimensions, order="F")
    except StopIteration:
        raise ValueError("a matrix is not complete") from None


def _text(kind: int, content: memoryview, order: str) -> str:
    if len(content) > _MOST_LETTERS:
        raise ValueError("a text is too long")
    codec = _TEXTS[kind]
    return bytes(content).decode(
        codec if codec in ("utf-8", "latin-1") else f"{codec}-{'le' if order == '<' else 'be'}"
    )


def _read_v73(path: Path, wanted: Collection[str], max_bytes: int | None) -> dict[str, Variable]:
    import h5py

    content: dict[str, Variable] = {}
    with h5py.File(path, "r") as file:
        for key in file.keys() & set(wanted):
            if not isinstance(file.get(key, getlink=True), h5py.HardLink):
                raise ValueError("a link to another place")
            data = _checked(file[key], path, max_bytes)
            if data.attrs.get("MATLAB_empty"):  # stores its shape instead of values
                content[key] = np.zeros((0, 0))
            elif data.dtype == h5py.ref_dtype:  # a cell array of strings
                references = data[()].reshape(-1)
                content[key] = [_characters(_checked(file[reference], path, max_bytes)) for reference in references]
            else:
                content[key] = data[()].T  # MATLAB is column-major
    return content


def _checked(data: Any, path: Path, max_bytes: int | None) -> Any:
    """A dataset whose values are in the file itself, with a size that fits it."""
    if data.is_virtual or data.external:
        raise ValueError("values in another file")
    size, stored = data.size * data.dtype.itemsize, data.id.get_storage_size()
    if data.chunks is None and size > max(stored, 1 << 16):  # contiguous: small ones may be in the header
        raise ValueError("values are missing")
    check_unpacked(path, size, stored, max_bytes)
    return data


def _characters(codes: Any) -> str:
    if codes.size > _MOST_LETTERS:
        raise ValueError("a text is too long")
    return "" if codes.attrs.get("MATLAB_empty") else "".join(map(chr, codes[()].reshape(-1).tolist()))
