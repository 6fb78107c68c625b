"""`ZeroShotDataset`: features, labels, class descriptors and a split, validated on construction."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.checks import check_descriptors, check_distinct, check_features, check_integers, row_chunks
from classnorm.data.names import check_attribute_names
from classnorm.data.provenance import Provenance
from classnorm.data.row_store import Features, IntArray, RowStore, RowView
from classnorm.errors import DataError

# SHA-256 (first 16 digits) of the sorted class names. AwA1 and AwA2 have the same classes but different rows.
_BENCHMARKS = {
    "839cf39f663841e7": "CUB",
    "97eaea9ca5eba9a8": "SUN",
    "dd61963d915d9176": "AWA2",
    "6dfa98a106b8e62a": "APY",
}
_AWA1_ROWS = 30475


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers (0-based) of the three parts of a generalized zero-shot split."""

    train: IntArray
    test_seen: IntArray
    test_unseen: IntArray

    @classmethod
    def from_masks(cls, is_unseen: npt.NDArray[np.bool_], is_test: npt.NDArray[np.bool_]) -> Split:
        """Split rows by two masks [n_rows]; all rows of unseen classes are test rows."""
        return cls(*map(np.flatnonzero, (~is_unseen & ~is_test, ~is_unseen & is_test, is_unseen)))

    @property
    def parts(self) -> dict[str, Any]:
        """Name of the part → its rows."""
        return {"train": self.train, "test_seen": self.test_seen, "test_unseen": self.test_unseen}

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the sorted row numbers."""
        digest = hashlib.sha256()
        for rows in self.parts.values():
            digest.update(np.sort(rows).astype("<i8").tobytes() + b"|")
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ZeroShotDataset:
    """Everything a zero-shot method may use. `from_arrays` validates its arguments.

    A class is *seen* if it has a training row; all other classes are unseen, even without test rows.
    """

    name: str
    features: Features  # [n_rows, d_z], float32 or float16, possibly memory-mapped or a store of rows in files
    labels: IntArray  # [n_rows], index into class_names
    descriptors: npt.NDArray[np.float32]  # [n_classes, d_a]
    class_names: tuple[str, ...]
    split: Split
    provenance: Provenance = field(default_factory=Provenance)
    image_files: tuple[str, ...] | None = None
    is_train: npt.NDArray[np.bool_] | None = None  # official train/test split of the images, for continual streams
    images: npt.NDArray[np.uint8] | None = None  # [n_rows, height, width], possibly memory-mapped
    attribute_names: tuple[str, ...] | None = None  # [d_a], not part of the checksum; equal names are one attribute

    @classmethod
    def from_arrays(
        cls,
        features: npt.ArrayLike | RowStore,
        labels: npt.ArrayLike,
        descriptors: npt.ArrayLike,
        class_names: Sequence[str],
        *,
        train: npt.ArrayLike,
        test_seen: npt.ArrayLike = (),
        test_unseen: npt.ArrayLike = (),
        name: str = "data",
        where: str | None = None,
        provenance: Mapping[str, str] | None = None,
        image_files: Sequence[str] | None = None,
        is_train: npt.ArrayLike | None = None,
        images: npt.NDArray[np.uint8] | None = None,
        attribute_names: Sequence[str] | None = None,
    ) -> ZeroShotDataset:
        """Validate the arrays and build a dataset from them.

        Args:
            features: [n_rows, d_z]; float16, memory-mapped arrays and stores are kept, others become float32.
            labels: [n_rows], 0-based index into `class_names`.
            descriptors: [n_classes, d_a], one row per class, including unseen classes.
            class_names: one distinct name per class.
            train: 0-based row numbers; those of `test_seen` and `test_unseen` are others.
            test_seen: other rows of seen classes.
            test_unseen: rows of unseen classes.
            where: file or object named in error messages; `name` by default.
            attribute_names: names of the columns of `descriptors`, for explanations.

        Raises:
            DataError: an array is invalid.

        >>> data = ZeroShotDataset.from_arrays(
        ...     np.eye(4), [0, 0, 1, 2], np.eye(3), ["cat", "dog", "okapi"], train=[0, 1], test_seen=[], test_unseen=[3]
        ... )
        >>> data.class_names[data.labels[3]], data.seen.tolist()
        ('okapi', [True, False, False])
        """
        where = where or name
        names = tuple(map(str, class_names))
        if len(names) < 2:
            raise DataError(f"{where}: {len(names)} class names; at least 2 classes are needed")
        check_distinct(names, where)
        table = check_descriptors(descriptors, names, where)
        matrix = check_features(features, where)
        n_rows = len(matrix)
        index = _check_labels(labels, n_rows, len(names), where)
        parts = {"train": train, "test_seen": test_seen, "test_unseen": test_unseen}
        split = Split(**{part: _check_rows(rows, part, n_rows, where) for part, rows in parts.items()})
        _check_split(split, index, names, where)
        for key, column in (("image_files", image_files), ("is_train", is_train), ("images", images)):
            if column is not None and (length := len(np.atleast_1d(column))) != n_rows:
                raise DataError(f"{where}: {key} has {length} entries for {n_rows} rows; give one per row")
        columns = None if attribute_names is None else check_attribute_names(attribute_names, table.shape[1], where)
        return cls(
            name=name,
            features=matrix,
            labels=index,
            descriptors=table,
            class_names=names,
            split=split,
            provenance=Provenance(dict(provenance or {})),
            image_files=None if image_files is None else tuple(map(str, image_files)),
            is_train=None if is_train is None else np.asarray(is_train, dtype=bool),
            images=images,
            attribute_names=columns,
        )

    def restricted(self, classes: IntArray) -> ZeroShotDataset:
        """Keep only these classes, in this order. Rows of other classes get label −1 and leave the split."""
        position = np.full(self.n_classes, -1, dtype=np.int64)
        position[classes] = np.arange(len(classes))
        labels = np.where(self.labels >= 0, position[self.labels], -1)
        return replace(
            self,
            labels=labels,
            descriptors=self.descriptors[classes],
            class_names=tuple(self.class_names[c] for c in classes),
            split=Split(*(rows[labels[rows] >= 0] for rows in self.split.parts.values())),
        )

    @cached_property
    def benchmark(self) -> str | None:
        """CUB, SUN, AWA1, AWA2 or APY, recognised by the class names; None for other datasets."""
        return recognise(self.class_names, self.n_rows)

    def example_positions(self, most: int = 24) -> IntArray:
        """Positions in `test_rows` of examples: one row per class, from up to `most` evenly spaced unseen classes."""
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
        """Whether all training features are ≥ 0, as after average pooling of ReLU outputs."""
        if isinstance(self.features, RowStore) and self.features.minimum is not None and self.features.minimum >= 0:
            return True
        return all(block.min() >= 0 for block in row_chunks(self.view(self.split.train)))

    def view(self, rows: IntArray) -> RowView:
        """These rows of the features, read when they are used."""
        return RowView(self.features, rows)

    def loaded(self, rows: IntArray) -> npt.NDArray[np.float32]:
        """These rows of the features in memory; raises if a store allows fewer."""
        if isinstance(self.features, RowStore):
            self.features.require_memory(len(rows), np.float32)
        return np.asarray(self.features[rows], dtype=np.float32)

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

    @cached_property
    def positions(self) -> int:
        """Positions of the feature map that a row holds, position by position; 1 for pooled features."""
        shape = self.provenance.get("maps")
        if shape is None:
            return 1
        sides = shape.split("x")
        if len(sides) != 3 or not all(side.isdecimal() for side in sides) or math.prod(map(int, sides)) != self.d_z:
            raise DataError(
                f"{self.name}: maps={shape} in its provenance does not fit features of {self.d_z} dimensions; "
                "it must be HEIGHTxWIDTHxCHANNELS"
            )
        return int(sides[0]) * int(sides[1])

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of rows, classes and dimensions, as recorded in every result."""
        return {
            "rows": self.n_rows,
            **{f"{part}_rows": len(rows) for part, rows in self.split.parts.items()},
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
        if isinstance(self.features, RowStore):
            digest.update(self.features.checksum.encode())
        else:
            for chunk in row_chunks(self.features):
                digest.update(np.ascontiguousarray(chunk).tobytes())
        for array in (self.labels, self.descriptors):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(("\n".join(self.class_names) + self.split.checksum).encode())
        return digest.hexdigest()

    @cached_property
    def test_rows(self) -> IntArray:
        """Row numbers of the test set: seen, then unseen."""
        return np.concatenate([self.split.test_seen, self.split.test_unseen])

    @property
    def notices(self) -> list[str]:
        """Warnings about a valid dataset."""
        notices = []
        if self.provenance.get("features") == "simulated":
            notices.append("features are simulated: scores show how a method behaves, not how accurate it is")
        present = self.labels[np.concatenate(list(self.split.parts.values()))]
        absent = [self.class_names[c] for c in np.setdiff1d(np.arange(self.n_classes), present)]
        if absent:
            some = ", ".join(absent[:3]) + (", …" if len(absent) > 3 else "")
            notices.append(
                f"{len(absent)} class{'es have' if len(absent) > 1 else ' has'} no training or test row ({some}): "
                "competing for every prediction, left out of the averages"
            )
        empty = [kind for kind in ("seen", "unseen") if not len(self.split.parts[f"test_{kind}"])]
        undefined = "their accuracy and the harmonic mean are undefined"
        return notices + [f"no test rows of {kind} classes: {undefined}" for kind in empty]


def _check_labels(labels: npt.ArrayLike, n_rows: int, n_classes: int, where: str) -> IntArray:
    index = check_integers(labels, "labels", where)
    if len(index) != n_rows:
        raise DataError(
            f"{where}: {len(index)} labels for {n_rows} rows of features; give one label per row, features as [rows, d]"
        )
    bad = np.flatnonzero((index < 0) | (index >= n_classes))
    if len(bad):
        raise DataError(
            f"{where}: label {index[bad[0]]} of row {bad[0]} (0-based) is out of range; "
            f"{n_classes} classes allow 0 to {n_classes - 1}"
        )
    return index


def _check_rows(rows: npt.ArrayLike, part: str, n_rows: int, where: str) -> IntArray:
    index = check_integers(rows, f"{part} rows", where)
    bad = index[(index < 0) | (index >= n_rows)]
    if len(bad):
        raise DataError(f"{where}: {part} names row {bad[0]} (0-based), but there are {n_rows} rows; check the split")
    values, counts = np.unique(index, return_counts=True)
    if (counts > 1).any():
        raise DataError(f"{where}: {part} names row {values[counts > 1][0]} (0-based) twice; check the split")
    return index


def _check_split(split: Split, labels: IntArray, names: tuple[str, ...], where: str) -> None:
    if not len(split.train):
        raise DataError(f"{where}: no training rows; the split must list at least one")
    for (one, one_rows), (other, other_rows) in combinations(split.parts.items(), 2):
        shared = np.intersect1d(one_rows, other_rows)
        if len(shared):
            raise DataError(
                f"{where}: {len(shared)} rows are in both {one} and {other} (first: row {shared[0]}, 0-based); "
                "scores on them would be meaningless, correct the split"
            )
    seen = np.unique(labels[split.train])
    leaked = np.intersect1d(seen, labels[split.test_unseen])
    if len(leaked):
        raise DataError(
            f"{where}: class {names[leaked[0]]!r} is among the test rows of unseen classes and has training rows; "
            "an unseen class must have none"
        )
    untrained = np.setdiff1d(labels[split.test_seen], seen)
    if len(untrained):
        raise DataError(
            f"{where}: class {names[untrained[0]]!r} is among the test rows of seen classes but has no training row; "
            "move its rows to test_unseen"
        )


def recognise(class_names: Sequence[str], n_rows: int) -> str | None:
    """Return the GBU benchmark with these class names (CUB, SUN, AWA1, AWA2 or APY), or None."""
    digest = hashlib.sha256("\n".join(sorted(class_names)).encode()).hexdigest()[:16]
    benchmark = _BENCHMARKS.get(digest)
    return "AWA1" if benchmark == "AWA2" and n_rows == _AWA1_ROWS else benchmark
