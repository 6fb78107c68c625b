"""Descriptor tables in memory: a DataFrame, a mapping from class to vector, or an array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


def is_frame(table: Any) -> bool:
    """Whether `table` is a DataFrame; does not need pandas."""
    return hasattr(table, "index") and hasattr(table, "to_numpy")


def aligned(descriptors: Any) -> Any:
    """A mapping from class to Series as a DataFrame, which puts their values in one order; all else unchanged."""
    series = list(descriptors.values()) if isinstance(descriptors, Mapping) else []
    if not series or not all(is_frame(one) and hasattr(one, "to_frame") for one in series):
        return descriptors
    import pandas as pd

    try:
        return pd.DataFrame(dict(descriptors)).T
    except ValueError as error:
        raise DataError(f"the Series of the classes cannot be aligned ({error}); name each attribute once") from None


def descriptor_table(descriptors: Any, classes: Array) -> dict[Any, Floats]:
    """Return class → descriptor. The rows of an array belong to `classes`, the sorted labels, or to 0, 1, 2, …"""
    if descriptors is None:
        return dict(zip(classes.tolist(), np.eye(len(classes)), strict=True))
    if isinstance(descriptors, Mapping):
        names, rows = list(descriptors), [np.ravel(vector) for vector in descriptors.values()]
    elif is_frame(descriptors):
        frame = _named_frame(descriptors, classes)
        names, rows = list(frame.index), list(frame.to_numpy())
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


def numbered_table(descriptors: Any, names: Array) -> dict[int, Floats]:
    """Return number → descriptor of the name with this number."""
    if names.ndim != 1 or not len(names) or len(np.unique(names)) < len(names):
        raise DataError("`labels` must be a list of distinct names: those of the classes 0, 1, 2, … of y")
    table = descriptor_table(descriptors, names)
    missing = [name for name in names.tolist() if name not in table]
    if missing:
        raise DataError(f"class {missing[0]!r} of `labels` is not among the {len(table)} descriptors; add it")
    return {number: table[name] for number, name in enumerate(names.tolist())}


def _named_frame(frame: Any, classes: Array) -> Any:
    """The DataFrame indexed by class: if rows are numbered but labels are text, a column of text has the names."""
    is_text = classes.dtype.kind == "U" or (classes.dtype == object and all(isinstance(c, str) for c in classes))
    if not is_text or not hasattr(frame, "columns") or any(isinstance(name, str) for name in frame.index):
        return frame
    columns = _text_columns(frame)
    if len(columns) == 1:
        return frame.set_index(columns[0])
    some = f"{len(columns)} columns of text ({', '.join(map(repr, columns[:3]))})" if columns else "no column of text"
    raise DataError(
        f"the rows of the descriptors are numbered, but labels are like {classes.tolist()[0]!r}, and there is {some} "
        "to name them; index the table by class, for example with table.set_index('name')"
    )


def _text_columns(frame: Any) -> list[Any]:
    return [column for column in frame.columns if len(frame) and all(isinstance(value, str) for value in frame[column])]


def column_names(descriptors: Any) -> list[str] | None:
    """Return the names of the columns of a DataFrame, if they are names, without a column that names the classes."""
    columns = list(descriptors.columns) if is_frame(descriptors) and hasattr(descriptors, "columns") else []
    if columns and not any(isinstance(name, str) for name in descriptors.index):
        columns = [column for column in columns if column not in _text_columns(descriptors)]
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
        hint = (
            " (cross_val_predict numbers the labels for probabilities: also give it their names, "
            "params={'descriptors': table, 'labels': np.unique(y)})"
        )
        is_numbered = classes.dtype.kind in "iu" and isinstance(new[0], str)
        raise DataError(
            f"labels are like {classes.tolist()[0]!r}, but a descriptor is named {new[0]!r}; name classes as in y"
            + hint * is_numbered
        )
    try:
        return np.unique(np.concatenate([classes, added]))
    except TypeError:
        raise DataError(f"the classes {classes.tolist()[0]!r} and {new[0]!r} cannot be sorted together") from None
