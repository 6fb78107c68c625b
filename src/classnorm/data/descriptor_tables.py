"""Descriptor tables in memory: a DataFrame, a mapping from class to vector, or an array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError

__all__ = ["column_names", "descriptor_table", "is_frame", "joined_classes"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


def is_frame(table: Any) -> bool:
    """Whether `table` is a DataFrame; does not need pandas."""
    return hasattr(table, "index") and hasattr(table, "to_numpy")


def descriptor_table(descriptors: Any, classes: Array) -> dict[Any, Floats]:
    """Return class → descriptor. The rows of an array belong to `classes`, the sorted labels, or to 0, 1, 2, …"""
    if descriptors is None:
        return dict(zip(classes.tolist(), np.eye(len(classes)), strict=True))
    if isinstance(descriptors, Mapping):
        names, rows = list(descriptors), [np.ravel(vector) for vector in descriptors.values()]
    elif is_frame(descriptors):
        names, rows = list(descriptors.index), list(descriptors.to_numpy())
    else:
        rows = list(descriptors)
        names = classes.tolist()
        if len(rows) != len(names):
            if classes.dtype.kind not in "iu" or classes[0] < 0 or classes[-1] >= len(rows):
                raise DataError(
                    f"an array of {len(rows)} descriptors for the {len(names)} classes of y leaves open which row "
                    "belongs to which class; give a DataFrame or a mapping from class to vector"
                )
            names = list(range(len(rows)))
    if not names:
        raise DataError("the table of descriptors is empty; give one row per class")
    table: dict[Any, Floats] = {}
    for name, row in zip(names, rows, strict=True):
        if name in table:
            raise DataError(f"class {name!r} has two descriptors; classes must be distinct")
        try:
            table[name] = np.asarray(row, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"the descriptor of class {name!r} holds something that is not a number") from None
        if table[name].shape != table[names[0]].shape or table[name].ndim != 1:
            raise DataError(
                f"the descriptor of class {name!r} has shape {table[name].shape}, that of {names[0]!r} "
                f"{table[names[0]].shape}; give every class a vector of the same length"
            )
    return table


def column_names(descriptors: Any) -> list[str] | None:
    """Return the names of the columns of a DataFrame, if they are names."""
    columns = list(descriptors.columns) if is_frame(descriptors) and hasattr(descriptors, "columns") else []
    return columns if columns and all(isinstance(column, str) for column in columns) else None


def joined_classes(classes: Array, names: list[Any]) -> Array:
    """Return the sorted union of labels and names, in the dtype of the labels."""
    known = set(classes.tolist())
    new = [name for name in names if name not in known]
    if not new:
        return classes
    kinds = {"i": "number", "u": "number", "f": "number", "b": "bool", "U": "text", "S": "bytes"}
    added = np.array(new, dtype=object if classes.dtype == object else None)
    if classes.dtype.kind in "iu" and added.dtype.kind == "f" and (added == added.astype(classes.dtype)).all():
        added = added.astype(classes.dtype)  # e.g. the index of a DataFrame that was converted to float
    if kinds.get(classes.dtype.kind) != kinds.get(added.dtype.kind):
        raise DataError(
            f"labels are like {classes.tolist()[0]!r}, but a descriptor is named {new[0]!r}; name classes as in y"
        )
    try:
        return np.unique(np.concatenate([classes, added]))
    except TypeError:
        raise DataError(f"the classes {classes.tolist()[0]!r} and {new[0]!r} cannot be sorted together") from None
