"""`RowStore`: rows of features that stay in files and are read when needed, so that memory does not grow with them.

Rows are read with plain file reads, not memory maps: pages of a map count as memory of the process.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError
from classnorm.io.arrays import npy_header
from classnorm.io.documents import Count, check_shape, parse_json

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.int64]
DType = Literal["float16", "float32"]
Item = TypeVar("Item")
Result = TypeVar("Result")

MEMORY = 4.0  # GiB of rows that may be loaded at once, by default
_BLOCK_BYTES = 1 << 18  # read in one go: little enough to shuffle well, enough to be quick on any drive
_GAP_BYTES = 1 << 16  # of unwanted rows that are read rather than skipped
_SPAN_BYTES = 1 << 22  # read at once, with the gaps
_HASHED_ROWS = 4096  # read at a time for a checksum
_MOST_HEADER = 100_000_000  # bytes of a safetensors header, as in the library
_DTYPES: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}  # of safetensors


@dataclass(frozen=True)
class Shard(ABC):
    """A file of rows."""

    path: Path
    rows: int
    dimensions: int
    dtype: np.dtype[Any]

    @abstractmethod
    def read(self, rows: IntArray, out: FloatArray) -> None:
        """Read ascending `rows` into `out`."""

    @property
    def block_rows(self) -> int:
        """Rows that are best read together."""
        return max(1, _BLOCK_BYTES // (self.dimensions * self.dtype.itemsize))


@dataclass(frozen=True)
class RawShard(Shard):
    """Rows that lie one after the other in a file, as in `.npy` and safetensors."""

    offset: int
    """Of the first row, in bytes."""

    def read(self, rows: IntArray, out: FloatArray) -> None:
        row_bytes = self.dimensions * self.dtype.itemsize
        breaks = np.append(np.flatnonzero(np.diff(rows) > 1 + _GAP_BYTES // row_bytes) + 1, len(rows))
        most = max(1, _SPAN_BYTES // row_bytes)
        try:
            with self.path.open("rb", buffering=0) as file:
                start = 0
                while start < len(rows):
                    stop = min(breaks[np.searchsorted(breaks, start, side="right")], start + most)
                    stop = int(np.searchsorted(rows[:stop], rows[start] + most))
                    first, count = int(rows[start]), int(rows[stop - 1] - rows[start]) + 1
                    file.seek(self.offset + first * row_bytes)
                    if np.array_equal(rows[start:stop], np.arange(first, first + count)):
                        self._fill(file, out[start:stop])
                    else:
                        span = np.empty((count, self.dimensions), dtype=self.dtype)
                        self._fill(file, span)
                        out[start:stop] = span[rows[start:stop] - first]
                    start = stop
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror or error})") from error

    def _fill(self, file: Any, rows: FloatArray) -> None:
        view = rows.reshape(-1).view(np.uint8).data
        filled = 0
        while filled < len(view):
            count = file.readinto(view[filled:])
            if not count:
                raise DataError(f"{self.path}: ends before its last row; it is damaged, copy or write it again")
            filled += count


@dataclass(frozen=True)
class TableShard(Shard):
    """A Parquet or Arrow file, read by row groups or record batches."""

    starts: tuple[int, ...]
    """First row of each group, and the number of rows."""

    def read(self, rows: IntArray, out: FloatArray) -> None:
        table = _ArrowFile(self.path)
        bounds = np.searchsorted(rows, self.starts)
        for group, start in enumerate(self.starts[:-1]):
            part = slice(bounds[group], bounds[group + 1])
            if part.start < part.stop:
                out[part] = table.matrix(group)[rows[part] - start]

    @property
    def block_rows(self) -> int:
        return int(np.diff(self.starts).max(initial=1))


class _ArrowFile:
    """A Parquet or Arrow IPC file: one column of lists, or a column of numbers per dimension."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            import pyarrow
            import pyarrow.ipc
            import pyarrow.parquet
        except ImportError as error:
            raise DataError(f"{path}: Parquet needs pyarrow; pip install 'classnorm[parquet]'") from error
        try:
            if path.suffix == ".parquet":
                file = pyarrow.parquet.ParquetFile(path)
                self.groups, self._count = file.num_row_groups, lambda group: file.metadata.row_group(group).num_rows
                self._read = file.read_row_group
            else:
                batches = pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))  # unmapped with this object
                self.groups, self._count = batches.num_record_batches, lambda group: batches.get_batch(group).num_rows
                self._read = lambda group: pyarrow.Table.from_batches([batches.get_batch(group)])
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{path}: not a readable {path.suffix} file; it may be damaged") from error

    def starts(self) -> tuple[int, ...]:
        """First row of each group, and the number of rows."""
        return tuple(np.cumsum([0, *map(self._count, range(self.groups))]).tolist())

    def matrix(self, group: int) -> FloatArray:
        """[rows, dimensions] of a group."""
        table = self._read(group).combine_chunks()
        names = table.column_names
        column = table.column("features" if "features" in names else 0)
        if hasattr(column.type, "value_type"):
            values = np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks])
            matrix = values.reshape(len(column), -1) if len(values) % max(1, len(column)) == 0 else values
        else:
            matrix = np.stack([one.to_numpy() for one in table.columns], axis=1)
        if matrix.ndim != 2 or matrix.dtype not in _DTYPES.values():
            raise DataError(f"{self.path}: must hold rows of equal length in float16 or float32, not {matrix.dtype}")
        return matrix


def open_shard(path: Path) -> Shard:
    """Look at the header of a `.npy`, `.safetensors`, `.parquet` or `.arrow` file."""
    openers: dict[str, Callable[[Path], Shard]] = {
        ".npy": _open_npy,
        ".safetensors": _open_safetensors,
        ".parquet": _open_table,
        ".arrow": _open_table,
    }
    if path.suffix not in openers:
        raise DataError(f"{path}: rows cannot be read from it; use {', '.join(openers)}")
    try:
        exists = path.is_file()
    except OSError:  # a name that is too long
        exists = False
    if not exists:
        raise DataError(f"{path}: no such file; copy or write the folder again")
    return openers[path.suffix](path)


class _Tensor(TypedDict):
    """An entry of the header of a safetensors file."""

    dtype: str
    shape: list[Count]
    data_offsets: list[Count]


def _open_npy(path: Path) -> Shard:
    header = npy_header(path)
    if header.fortran and len(header.shape) == 2 and min(header.shape) > 1:
        raise DataError(f"{path}: is in Fortran order; save np.ascontiguousarray(rows)")
    return _raw(path, header.shape, header.dtype, header.length)


def _open_safetensors(path: Path) -> Shard:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(_MOST_HEADER, path.stat().st_size):
                raise ValueError("the header is longer than the file")
            header = parse_json(file.read(length), dict[str, Any], str(path), "")
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        entry = tensors["features"] if "features" in tensors or len(tensors) != 1 else next(iter(tensors.values()))
        check_shape(entry, _Tensor, str(path), "")
        start, _ = entry["data_offsets"]
    except (OSError, ValueError, KeyError, DataError) as error:
        raise DataError(f"{path}: not a readable safetensors file with a tensor named features") from error
    return _raw(path, tuple(entry["shape"]), _DTYPES.get(entry["dtype"], np.dtype(np.void)), 8 + length + start)


def _raw(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> RawShard:
    if len(shape) != 2 or min(shape) < 0 or dtype not in _DTYPES.values():
        raise DataError(f"{path}: must be a float16 or float32 matrix [rows, dimensions], not {dtype} of shape {shape}")
    if path.stat().st_size < offset + shape[0] * shape[1] * dtype.itemsize:
        raise DataError(f"{path}: ends before its last row; it is damaged, copy or write it again")
    return RawShard(path, *shape, dtype, offset)


def _open_table(path: Path) -> Shard:
    file = _ArrowFile(path)
    starts = file.starts()
    first = file.matrix(0) if starts[-1] else np.empty((0, 0), dtype=np.float32)
    return TableShard(path, starts[-1], first.shape[1], first.dtype, starts)


@dataclass(frozen=True, eq=False)
class RowStore:
    """Rows of features in files. Indexing reads rows, as for an array; `np.asarray` reads all, up to a limit."""

    where: str
    shards: tuple[Shard, ...]
    hashes: tuple[str, ...] | None = None
    """SHA-256 of the rows of each shard, if it was recorded when they were checked and written."""
    minimum: float | None = None
    """Lowest value, if recorded."""
    memory: float = MEMORY
    """GiB of rows that may be loaded at once."""

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.starts[-1]), self.shards[0].dimensions

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.shards[0].dtype

    ndim = 2

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def starts(self) -> IntArray:
        """First row of each shard, and the number of rows."""
        return np.cumsum([0, *(shard.rows for shard in self.shards)])

    @property
    def block_rows(self) -> int:
        """Consecutive rows that are best read together."""
        return max(shard.block_rows for shard in self.shards)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the checksums of the shards, which are computed unless they were recorded."""
        return hashlib.sha256("".join(self.hashes or self.computed_hashes()).encode()).hexdigest()

    def computed_hashes(self) -> tuple[str, ...]:
        """SHA-256 of the rows of each shard, from a pass over all rows."""
        return tuple(_hash(RowStore(self.where, (shard,))) for shard in self.shards)

    def verify(self) -> None:
        """Raise if the rows differ from the recorded checksums."""
        if self.hashes is None:
            return
        for shard, old, new in zip(self.shards, self.hashes, self.computed_hashes(), strict=True):
            if old != new:
                raise DataError(f"{shard.path}: is not as it was written; copy or write it again")

    def __getitem__(self, key: Any) -> Any:
        """Rows by number, slice, mask or array of numbers, as for an array."""
        if isinstance(key, slice):
            return self.take(np.arange(*key.indices(len(self))))
        index = np.asarray(key)
        if index.ndim == 0:
            return self.take(index.reshape(1))[0]
        return self.take(np.flatnonzero(index) if index.dtype == bool else index)

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> FloatArray:
        """Read these rows, in this order: [n, dimensions]."""
        n = len(self)
        rows = np.where(rows < 0, rows + n, rows).astype(np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < n):
            raise IndexError(f"{self.where}: row out of range; there are {n} rows")
        if np.any(rows[1:] < rows[:-1]):
            order = np.argsort(rows, kind="stable")
            result = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
            result[order] = self.take(rows[order])
            return result
        result = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        bounds = np.searchsorted(rows, self.starts)
        for number, shard in enumerate(self.shards):
            part = slice(bounds[number], bounds[number + 1])
            if part.start < part.stop:
                shard.read(rows[part] - self.starts[number], result[part])
        return result

    def view(self, rows: IntArray) -> RowView:
        """These rows, read when they are used."""
        return RowView(self, rows)

    def require_memory(self, rows: int, dtype: npt.DTypeLike) -> None:
        """Raise if so many rows are more than may be loaded at once."""
        size = rows * self.shape[1] * np.dtype(dtype).itemsize / 2**30
        if size > self.memory:
            raise DataError(
                f"{self.where}: {rows} rows are needed in memory at once, {size:.3g} GiB, and the limit is "
                f"{self.memory:g} GiB; use a method that reads them in blocks, or raise `memory`"
            )

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self.require_memory(len(self), dtype or self.dtype)
        return self[:].astype(dtype or self.dtype, copy=False)  # type: ignore[no-any-return]


Features: TypeAlias = FloatArray | RowStore


def _hash(rows: RowStore) -> str:
    digest = hashlib.sha256()
    for _, block in row_blocks(rows, _HASHED_ROWS):
        digest.update(block.data)
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class RowView:
    """Some rows of a matrix of features, read when they are used."""

    features: Features
    rows: IntArray

    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), int(self.features.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.features.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> FloatArray:
        """Rows by slice or array of positions in the view."""
        result: FloatArray = self.features[self.rows[key]]
        return result


def row_blocks(rows: Features | RowView, size: int) -> Iterator[tuple[slice, FloatArray]]:
    """Blocks of consecutive rows with their positions; those from files are read one block ahead."""
    parts = [slice(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]
    if isinstance(rows, np.ndarray):
        return ((part, rows[part]) for part in parts)
    return zip(parts, read_ahead(rows.__getitem__, parts), strict=True)


def read_ahead(read: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``read(item)`` for each item; the next one is read in the background meanwhile."""
    with ThreadPoolExecutor(1, "read-ahead") as thread:
        pending = None
        for item in items:
            ahead = thread.submit(read, item)
            if pending is not None:
                yield pending.result()
            pending = ahead
        if pending is not None:
            yield pending.result()
