"""Arrays in `.npy` and `.npz` files. Headers are looked at before anything is allocated, and nothing is unpickled."""

from __future__ import annotations

import io
import math
import stat
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError

Array: TypeAlias = npt.NDArray[Any]
_FREE = 1 << 30  # bytes that any archive may unpack to
_RATIO = 50  # larger ones may not unpack to more than this multiple of the file: arrays of numbers do not
_MAPPED = 1 << 20  # uncompressed arrays of this size are memory-mapped
_HEADER = 1 << 16  # bytes of a header
_BLOCK = 1 << 22
_DAMAGED = "it is damaged or was not written by np.savez"


@dataclass(frozen=True)
class ArrayHeader:
    """What an array says about itself."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    length: int
    """Of the header, in bytes."""

    @property
    def size(self) -> int:
        """Of the header and the values, in bytes."""
        return self.length + math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> ArrayHeader:
    """Read the header at the start of an array; raises a ValueError if it is damaged."""
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(file, max_header_size=_HEADER)
        header = ArrayHeader(tuple(map(int, shape)), bool(fortran), np.dtype(dtype), file.tell())
    except MemoryError:
        raise
    except Exception as error:  # numpy evaluates the header, which raises many types
        raise ValueError("damaged header") from error
    if min(header.shape, default=0) < 0:
        raise ValueError("negative shape")
    return header


def npy_header(path: Path) -> ArrayHeader:
    """Read the header of an `.npy` file."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            return read_header(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable .npy file; it may be damaged") from error


def read_npy(path: Path) -> Array:
    """Map the array of an `.npy` file into memory."""
    header = npy_header(path)
    try:
        if header.dtype.hasobject:
            raise DataError(f"{path}: holds Python objects, which are never loaded; save numbers")
        if path.stat().st_size < header.size:
            raise ValueError("ends early")
        if not math.prod(header.shape) or not header.dtype.itemsize:
            return np.empty(header.shape, header.dtype)
        return _map(path, header, header.length)
    except (OSError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: not a readable .npy file; it may be damaged") from error


def write_npy(path: Path, array: Array) -> None:
    """Write an `.npy` file. `np.save` does not notice that a full disk has cut a small array short."""
    array = np.ascontiguousarray(array)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.reshape(-1).view(np.uint8).data)


def read_arrays(path: Path) -> dict[str, Array]:
    """All arrays of an `.npz` file."""
    with Archive(path) as archive:
        return {key: archive.read(key) for key in archive.keys}


def read_npz(
    path: Path, keys: tuple[str, ...], optional: tuple[str, ...] = (), max_bytes: int | None = None
) -> dict[str, Array]:
    """Arrays of an `.npz` file by name; large uncompressed ones are memory-mapped."""
    with Archive(path, max_bytes) as archive:
        missing = [key for key in keys if key not in archive]
        if missing:
            raise DataError(f"{path}: the array {missing[0]!r} is missing; a bundle contains {', '.join(keys)}")
        return {key: archive.read(key) for key in (*keys, *optional) if key in archive}


def texts(array: Array, where: str = "") -> list[str]:
    """Return the entries of an array as strings, decoding bytes."""
    try:
        entries = [text.decode() if isinstance(text, bytes) else str(text) for text in array.reshape(-1).tolist()]
        "".join(entries).encode()
    except (UnicodeError, ValueError) as error:  # bytes that are no UTF-8, half a character, a code that is none
        raise DataError(
            f"{where and f'{where}: '}holds names that are no text; write them as np.array(names)"
        ) from error
    return entries


def check_regular(path: Path) -> None:
    """Raise unless the path is a regular file: opening a pipe would wait."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{path}: not a regular file")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no such file") from error


def check_unpacked(path: Path, size: int, packed: int, max_bytes: int | None) -> None:
    """Raise if `packed` bytes of a file say that they unpack to more than is plausible, or than `max_bytes`."""
    if size > (max(_FREE, _RATIO * packed) if max_bytes is None else max_bytes):
        raise DataError(
            f"{path}: unpacks to {size / 2**30:.3g} GiB from {packed / 2**20:.3g} MB, more than is allowed; "
            f"if that is right, set `max_bytes={size}`"
        )


class Archive:
    """An `.npz` file. Errors are `DataError`s that name it."""

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        """
        Args:
            max_bytes: that all arrays together may take unpacked; by default 1 GiB, or 50 times the file if that is
                more.
        """
        check_regular(path)
        self.path = path
        try:
            with path.open("rb") as file:
                if file.read(6) == b"\x93NUMPY":
                    raise DataError(f"{path}: a single array, not an .npz bundle")
            self._zip = zipfile.ZipFile(path)
        except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
            raise self._damaged() from error
        self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
        if len(self._members) < len(self._zip.infolist()):
            raise DataError(f"{path}: contains an array twice; write it again")
        self._check_sizes(max_bytes)

    def _check_sizes(self, max_bytes: int | None) -> None:
        total = sum(info.file_size for info in self._members.values())
        packed = self.path.stat().st_size
        if total > packed and all(info.compress_type == zipfile.ZIP_STORED for info in self._members.values()):
            raise self._damaged()
        check_unpacked(self.path, total, packed, max_bytes)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    @property
    def keys(self) -> list[str]:
        return list(self._members)

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def read(self, key: str) -> Array:
        """An array; memory-mapped, with its checksum checked, if it is uncompressed and at least 1 MB."""
        info = self._member(key)
        try:
            with self._zip.open(info) as entry:
                header = read_header(entry)
            if header.dtype.hasobject:
                raise DataError(
                    f"{self.path}: the array {key!r} holds Python objects, which are never loaded; "
                    "save numbers as numbers and names with np.array(names, dtype=str)"
                )
            if header.size != info.file_size:
                raise ValueError("another size than in its header")
            if info.compress_type == zipfile.ZIP_STORED and info.file_size >= _MAPPED:
                return self._mapped(info, header)
            content = io.BytesIO(self._zip.read(info))  # checks the CRC
            return np.asarray(np.lib.format.read_array(content, allow_pickle=False, max_header_size=_HEADER))
        except (DataError, MemoryError):
            raise
        except Exception as error:  # zipfile, zlib and numpy raise many types on a damaged file
            raise self._damaged() from error

    def _member(self, key: str) -> zipfile.ZipInfo:
        if key not in self._members:
            raise DataError(f"{self.path}: the array {key!r} is missing; {_DAMAGED}")
        return self._members[key]

    def _mapped(self, info: zipfile.ZipInfo, header: ArrayHeader) -> Array:
        with self.path.open("rb") as file:
            file.seek(info.header_offset + 26)  # local header: lengths of the name and the extra field
            lengths = np.frombuffer(file.read(4), dtype="<u2")
            start = info.header_offset + 30 + int(lengths.sum())
            file.seek(start)
            if _crc(file.read, info.file_size) != info.CRC:
                raise DataError(f"{self.path}: is not as it was written (checksum); copy or write it again")
        return _map(self.path, header, start + header.length)

    def _damaged(self) -> DataError:
        return DataError(f"{self.path}: not a readable .npz bundle; {_DAMAGED}")


def _crc(read: Callable[[int], bytes], length: int) -> int:
    value = 0
    while length > 0:
        block = read(min(_BLOCK, length))
        if not block:
            raise ValueError("ends early")
        value, length = zlib.crc32(block, value), length - len(block)
    return value


def _map(path: Path, header: ArrayHeader, offset: int) -> Array:
    order = "F" if header.fortran else "C"
    return np.memmap(path, header.dtype, "r", offset, header.shape, order)  # type: ignore[call-overload,no-any-return]
