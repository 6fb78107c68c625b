"""Checks of the arrays of a dataset; the errors say what is wrong, where, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from classnorm.data.row_store import Features, FloatArray, IntArray, RowStore, RowView, row_blocks
from classnorm.errors import DataError

_LARGEST = 2**53  # up to here float64 represents every integer exactly
_CHUNK = 4096  # rows per block, so that a memory-mapped file is never fully in memory


def row_chunks(features: Features | RowView) -> Iterator[FloatArray]:
    """Iterate over blocks of rows."""
    return (block for _, block in row_blocks(features, _CHUNK))


def converted_blocks(features: Features, dtype: npt.DTypeLike, size: int = _CHUNK) -> Iterator[FloatArray]:
    """Iterate over blocks of rows in another precision."""
    for _, block in row_blocks(features, size):
        with np.errstate(over="ignore"):
            rows = block.astype(dtype, copy=False)
        if not np.isfinite(rows).all():
            raise DataError(f"features up to {np.abs(block).max():.3g} cannot be stored in {rows.dtype}; use float32")
        yield rows


def check_features(features: npt.ArrayLike | RowStore, where: str) -> Features:
    """Return a finite [n, d] matrix in float32 or float16; memory-mapped input and stores stay what they are."""
    if isinstance(features, RowStore):
        if features.hashes is None:  # not written by `FolderWriter`, which checks
            _check_finite(features, where)
        return features
    return check_array(features, where)


def check_array(features: npt.ArrayLike, where: str) -> FloatArray:
    """Like `check_features`, for an array."""
    matrix = np.asanyarray(features)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise DataError(
            f"{where}: features must be a numeric matrix [rows, dimensions], not {matrix.dtype} of shape {matrix.shape}"
        )
    if matrix.shape[1] == 0:
        raise DataError(f"{where}: features have no columns; check the file")
    if matrix.dtype not in (np.float32, np.float16):
        with np.errstate(over="ignore"):
            matrix = matrix.astype(np.float32)
    _check_finite(matrix, where)
    return matrix


def _check_finite(matrix: Features, where: str) -> None:
    for number, chunk in enumerate(row_chunks(matrix)):
        # A finite sum implies finite values. An infinite one may be overflow, so check each value.
        with np.errstate(invalid="ignore", over="ignore"):
            total = chunk.sum(dtype=np.float64)
        if not np.isfinite(total):
            bad = np.flatnonzero(~np.isfinite(chunk).all(axis=1))
            if len(bad):
                raise DataError(
                    f"{where}: features of row {number * _CHUNK + int(bad[0])} (0-based) hold NaN or infinity; "
                    "remove or correct that row"
                )


def check_descriptors(descriptors: npt.ArrayLike, names: Sequence[str], where: str) -> npt.NDArray[np.float32]:
    """Return a finite [n_classes, d_a] table without all-zero rows."""
    table = np.asarray(descriptors)
    if table.ndim != 2 or table.dtype.kind not in "fiub" or table.shape[1] == 0:
        raise DataError(
            f"{where}: descriptors must be a numeric table [classes, dimensions], "
            f"not {table.dtype} of shape {table.shape}"
        )
    if len(table) != len(names):
        raise DataError(
            f"{where}: {len(table)} descriptors for {len(names)} class names; give one per class, in that order"
            + (" (is the table transposed?)" if table.shape[1] == len(names) else "")
        )
    with np.errstate(over="ignore"):
        table = table.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(bad):
        raise DataError(f"{where}: the descriptor of class {names[bad[0]]!r} holds NaN or infinity; correct it")
    zero = np.flatnonzero(~table.any(axis=1))
    if len(zero):
        raise DataError(f"{where}: the descriptor of class {names[zero[0]]!r} is all zero; fill it in")
    return table


def check_distinct(names: Iterable[str], where: str) -> None:
    """Raise a `DataError` if a class name occurs twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{where}: class name {repeated[0]!r} occurs twice; names must be distinct")


def check_integers(values: npt.ArrayLike, key: str, where: str) -> IntArray:
    """Return a flat array of integers; integer-valued floats are converted."""
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    integral = array.dtype.kind == "f" and (np.abs(array) <= _LARGEST).all() and (array == np.round(array)).all()
    if array.dtype.kind not in "iu" and not integral:
        name_hint = "; give the index of each name in class_names"
        hints = {"b": "; convert the mask to row numbers with np.flatnonzero", "U": name_hint, "S": name_hint}
        raise DataError(f"{where}: {key} must be whole numbers, not {array.dtype}{hints.get(array.dtype.kind, '')}")
    return array.reshape(-1).astype(np.int64)
