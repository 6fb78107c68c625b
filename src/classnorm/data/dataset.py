"""`ZeroShotDataset`: features, labels, class descriptors and a split, checked once, at the door."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.gbu_benchmarks import recognise
from classnorm.errors import DataError

__all__ = [
    "FloatArray",
    "IntArray",
    "Split",
    "ZeroShotDataset",
    "check_descriptors",
    "check_distinct",
    "check_features",
    "check_integers",
    "row_chunks",
]

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.int64]

_LARGEST = 2**53  # whole number that a double holds exactly
_CHUNK = 4096  # rows looked at together, so that a memory-mapped file is never read whole


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers (0-based) of the three parts of a generalized zero-shot split."""

    train: IntArray
    test_seen: IntArray
    test_unseen: IntArray

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the sorted row numbers: two published versions of a split differ here."""
        digest = hashlib.sha256()
        for rows in (self.train, self.test_seen, self.test_unseen):
            digest.update(np.sort(rows).astype("<i8").tobytes() + b"|")
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ZeroShotDataset:
    """Everything a zero-shot method may know. Make one with `from_arrays`, which checks it.

    A class is *seen* if it has a training row; every other class is unseen, whether it has test rows or not.
    """

    name: str
    features: FloatArray  # [n_rows, d_z], float32 or float16, possibly memory-mapped
    labels: IntArray  # [n_rows], index into class_names
    descriptors: npt.NDArray[np.float32]  # [n_classes, d_a]
    class_names: tuple[str, ...]
    split: Split
    provenance: dict[str, str] = field(default_factory=dict)  # which features, which attributes, which split
    image_files: tuple[str, ...] | None = None
    is_train: npt.NDArray[np.bool_] | None = None  # an official train/test image split, for continual streams
    images: npt.NDArray[np.uint8] | None = None  # [n_rows, height, width], possibly memory-mapped

    @classmethod
    def from_arrays(
        cls,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        descriptors: npt.ArrayLike,
        class_names: Sequence[str],
        *,
        train: npt.ArrayLike,
        test_seen: npt.ArrayLike = (),
        test_unseen: npt.ArrayLike = (),
        name: str = "data",
        where: str | None = None,
        provenance: dict[str, str] | None = None,
        image_files: Sequence[str] | None = None,
        is_train: npt.ArrayLike | None = None,
        images: npt.NDArray[np.uint8] | None = None,
    ) -> ZeroShotDataset:
        """Check the arrays and make a dataset of them.

        Args:
            features: [n_rows, d_z]; float16 and memory-mapped arrays stay what they are, the rest becomes float32.
            labels: [n_rows], 0-based index into `class_names`.
            descriptors: [n_classes, d_a], one row per class, unseen ones too.
            class_names: one distinct name per class.
            train, test_seen, test_unseen: 0-based row numbers that do not overlap.
            where: the file or object that error messages should name.

        Raises:
            DataError: in one line, what is wrong, where, and what to do.

        >>> data = ZeroShotDataset.from_arrays(
        ...     np.eye(4), [0, 0, 1, 2], np.eye(3), ["cat", "dog", "okapi"], train=[0, 1], test_seen=[], test_unseen=[3]
        ... )
        >>> data.class_names[data.labels[3]], data.seen.tolist()
        ('okapi', [True, False, False])
        """
        where = where or name
        names = _check_names(class_names, where)
        table = check_descriptors(descriptors, names, where)
        matrix = check_features(features, where)
        n_rows = len(matrix)
        index = _check_labels(labels, n_rows, len(names), where)
        split = Split(*(_check_rows(rows, part, n_rows, where) for rows, part in (
            (train, "train"), (test_seen, "test_seen"), (test_unseen, "test_unseen"))))  # fmt: skip
        _check_split(split, index, names, where)
        for what, column in (("image_files", image_files), ("is_train", is_train), ("images", images)):
            if column is not None and len(np.atleast_1d(column)) != n_rows:
                raise DataError(
                    f"{where}: {what} has {len(np.atleast_1d(column))} entries for {n_rows} rows; give one per row"
                )
        return cls(
            name=name,
            features=matrix,
            labels=index,
            descriptors=table,
            class_names=names,
            split=split,
            provenance=dict(provenance or {}),
            image_files=None if image_files is None else tuple(str(file) for file in image_files),
            is_train=None if is_train is None else np.asarray(is_train, dtype=bool),
            images=images,
        )

    def restricted(self, classes: IntArray) -> ZeroShotDataset:
        """The dataset of these classes alone, in this order; rows of other classes have the label −1 and no part."""
        position = np.full(self.n_classes, -1, dtype=np.int64)
        position[classes] = np.arange(len(classes))
        labels = np.where(self.labels >= 0, position[self.labels], -1)
        parts = (self.split.train, self.split.test_seen, self.split.test_unseen)
        return replace(
            self,
            labels=labels,
            descriptors=self.descriptors[classes],
            class_names=tuple(self.class_names[c] for c in classes),
            split=Split(*(rows[labels[rows] >= 0] for rows in parts)),
        )

    @cached_property
    def benchmark(self) -> str | None:
        """CUB, SUN, AWA1, AWA2 or APY, by the class names; None for any other dataset."""
        return recognise(self.class_names, self.n_rows)

    def example_positions(self, most: int = 24) -> IntArray:
        """Positions in the test rows: one of each of a few unseen classes, spread evenly over them."""
        labels = self.labels[self.test_rows]
        candidates = np.flatnonzero(~self.seen[labels])
        classes, first = np.unique(labels[candidates], return_index=True)
        chosen = np.linspace(0, len(classes) - 1, min(most, len(classes))).round().astype(int)
        return np.sort(candidates[first[chosen]])

    @cached_property
    def seen(self) -> npt.NDArray[np.bool_]:
        """[n_classes], true for classes with a training row."""
        mask = np.zeros(self.n_classes, dtype=bool)
        mask[self.labels[self.split.train]] = True
        return mask

    @cached_property
    def nonnegative(self) -> bool:
        """Whether no training feature is negative, as after average pooling of ReLU outputs."""
        train = self.split.train
        blocks = (self.features[train[i : i + _CHUNK]] for i in range(0, len(train), _CHUNK))
        return all(block.min() >= 0 for block in blocks)

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @property
    def d_z(self) -> int:
        """Feature dimension."""
        return int(self.features.shape[1])

    @property
    def d_a(self) -> int:
        """Descriptor dimension."""
        return int(self.descriptors.shape[1])

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that every result carries."""
        return {
            "rows": self.n_rows,
            "train_rows": len(self.split.train),
            "test_seen_rows": len(self.split.test_seen),
            "test_unseen_rows": len(self.split.test_unseen),
            "classes": self.n_classes,
            "seen_classes": int(self.seen.sum()),
            "unseen_classes": int((~self.seen).sum()),
            "feature_dim": self.d_z,
            "descriptor_dim": self.d_a,
        }

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of features, labels, descriptors, class names and split."""
        digest = hashlib.sha256()
        for chunk in row_chunks(self.features):
            digest.update(np.ascontiguousarray(chunk).tobytes())
        for array in (self.labels, self.descriptors):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("\n".join(self.class_names).encode())
        digest.update(self.split.checksum.encode())
        return digest.hexdigest()

    @cached_property
    def test_rows(self) -> IntArray:
        """Row numbers of the test set: seen, then unseen."""
        return np.concatenate([self.split.test_seen, self.split.test_unseen])

    @property
    def notices(self) -> list[str]:
        """What is legal but worth knowing."""
        notices = []
        if self.provenance.get("features") == "simulated":
            notices.append("features are simulated: scores tell how a method behaves, not how well it recognises")
        present = np.zeros(self.n_classes, dtype=bool)
        present[self.labels[self.split.train]] = True
        present[self.labels[self.test_rows]] = True
        absent = [self.class_names[c] for c in np.flatnonzero(~present)]
        if absent:
            some = ", ".join(absent[:3]) + (", …" if len(absent) > 3 else "")
            notices.append(
                f"{len(absent)} class{'es are' if len(absent) > 1 else ' is'} without training or test row ({some}): "
                "competing for every prediction, left out of the averages"
            )
        for part, what in ((self.split.test_seen, "seen"), (self.split.test_unseen, "unseen")):
            if not len(part):
                notices.append(f"no test rows of {what} classes: their accuracy and the harmonic mean are undefined")
        return notices


def row_chunks(features: FloatArray) -> Iterator[FloatArray]:
    """Successive blocks of rows."""
    for start in range(0, len(features), _CHUNK):
        yield features[start : start + _CHUNK]


def check_features(features: npt.ArrayLike, where: str) -> FloatArray:
    """A finite [n, d] matrix in float32 or float16, memory-mapped if it was."""
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
    for number, chunk in enumerate(row_chunks(matrix)):
        # A sum is finite only if its parts are; it may overflow, so the slow look decides.
        with np.errstate(invalid="ignore", over="ignore"):
            total = chunk.sum(dtype=np.float64)
        if not np.isfinite(total):
            bad = np.flatnonzero(~np.isfinite(chunk).all(axis=1))
            if len(bad):
                raise DataError(
                    f"{where}: features of row {number * _CHUNK + int(bad[0])} (0-based) hold NaN or infinity; "
                    "remove or repair that row"
                )
    return matrix


def check_descriptors(descriptors: npt.ArrayLike, names: Sequence[str], where: str) -> npt.NDArray[np.float32]:
    """A finite [n_classes, d_a] table without an all-zero row."""
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
        raise DataError(f"{where}: the descriptor of class {names[bad[0]]!r} holds NaN or infinity; repair it")
    zero = np.flatnonzero(~table.any(axis=1))
    if len(zero):
        raise DataError(
            f"{where}: the descriptor of class {names[zero[0]]!r} is all zero; it describes nothing, fill it in"
        )
    return table


def _check_names(class_names: Sequence[str], where: str) -> tuple[str, ...]:
    names = tuple(str(name) for name in class_names)
    if len(names) < 2:
        raise DataError(f"{where}: {len(names)} class names; at least 2 classes are needed")
    check_distinct(names, where)
    return names


def check_distinct(names: Iterable[str], where: str) -> None:
    """Raise a `DataError` if a class name occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{where}: class name {twice[0]!r} occurs twice; names must be distinct")


def check_integers(values: npt.ArrayLike, what: str, where: str) -> IntArray:
    """A flat array of whole numbers; floats may hold them."""
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    whole = array.dtype.kind == "f" and (np.abs(array) <= _LARGEST).all() and np.array_equal(array, np.round(array))
    if array.dtype.kind not in "iu" and not whole:
        raise DataError(f"{where}: {what} must be whole numbers, not {array.dtype}{_remedy(array)}")
    return array.reshape(-1).astype(np.int64)


def _remedy(array: npt.NDArray[Any]) -> str:
    if array.dtype.kind == "b":
        return "; turn the mask into row numbers with np.flatnonzero"
    if array.dtype.kind in "US":
        return "; give the index of each name in class_names"
    return ""


def _check_labels(labels: npt.ArrayLike, n_rows: int, n_classes: int, where: str) -> IntArray:
    index = check_integers(labels, "labels", where)
    if len(index) != n_rows:
        raise DataError(
            f"{where}: {len(index)} labels for {n_rows} rows of features; give one label per row, features as [rows, d]"
        )
    bad = np.flatnonzero((index < 0) | (index >= n_classes))
    if len(bad):
        raise DataError(
            f"{where}: label {int(index[bad[0]])} of row {int(bad[0])} (0-based) is out of range; "
            f"{n_classes} classes allow 0 to {n_classes - 1}"
        )
    return index


def _check_rows(rows: npt.ArrayLike, part: str, n_rows: int, where: str) -> IntArray:
    index = check_integers(rows, f"{part} rows", where)
    bad = index[(index < 0) | (index >= n_rows)]
    if len(bad):
        raise DataError(
            f"{where}: {part} names row {int(bad[0])} (0-based), but there are {n_rows} rows; check the split"
        )
    values, counts = np.unique(index, return_counts=True)
    if (counts > 1).any():
        raise DataError(f"{where}: {part} names row {int(values[counts > 1][0])} (0-based) twice; check the split")
    return index


def _check_split(split: Split, labels: IntArray, names: tuple[str, ...], where: str) -> None:
    if not len(split.train):
        raise DataError(f"{where}: no training rows; the split must list at least one")
    parts = {"train": split.train, "test_seen": split.test_seen, "test_unseen": split.test_unseen}
    for one, other in (("train", "test_seen"), ("train", "test_unseen"), ("test_seen", "test_unseen")):
        shared = np.intersect1d(parts[one], parts[other])
        if len(shared):
            raise DataError(
                f"{where}: {len(shared)} rows are in both {one} and {other} (first: row {int(shared[0])}, 0-based); "
                "scores on them would be worthless, repair the split"
            )
    seen = np.unique(labels[split.train])
    leaked = np.intersect1d(seen, labels[split.test_unseen])
    if len(leaked):
        raise DataError(
            f"{where}: class {names[leaked[0]]!r} is among the test rows of unseen classes and has training rows; "
            "an unseen class may have none"
        )
    strange = np.setdiff1d(labels[split.test_seen], seen)
    if len(strange):
        raise DataError(
            f"{where}: class {names[strange[0]]!r} is among the test rows of seen classes but has no training row; "
            "move its rows to test_unseen"
        )
