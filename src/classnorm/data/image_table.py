"""`ImageTable`: pictures, their labels, and as much of a dataset as their source tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from classnorm.data.dataset import IntArray, Split, ZeroShotDataset
from classnorm.errors import DataError

__all__ = ["ImageTable", "Images", "folder_and_file"]

Images: TypeAlias = Sequence[Path] | npt.NDArray[np.uint8]
"""Files, or pixels [n, height, width] or [n, height, width, 3]."""


@dataclass(frozen=True, eq=False)
class ImageTable:
    """Pictures with their labels, and as much of a dataset as their source tells."""

    name: str
    files: tuple[str, ...]  # as the source names them; none for a dataset that names none
    labels: IntArray  # index into class_names
    class_names: tuple[str, ...]
    root: Path = Path()  # where relative files lie
    pixels: npt.NDArray[np.uint8] | None = None  # instead of files on disk
    is_train: npt.NDArray[np.bool_] | None = None
    descriptors: npt.NDArray[np.float32] | None = None
    split: Split | None = None
    provenance: dict[str, str] = field(default_factory=dict)  # of descriptors and split

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, dataset: ZeroShotDataset) -> ImageTable:
        """What a dataset tells apart from its features."""
        return cls(
            dataset.name,
            dataset.image_files or (),
            dataset.labels,
            dataset.class_names,
            pixels=dataset.images,
            is_train=dataset.is_train,
            descriptors=dataset.descriptors,
            split=dataset.split,
            provenance=dataset.provenance,
        )

    @cached_property
    def images(self) -> Images:
        return [self.root / file for file in self.files] if self.pixels is None else self.pixels

    def take(self, rows: IntArray) -> ImageTable:
        """The table of these rows, in this order; the split names those that are left."""
        return replace(
            self,
            files=tuple(self.files[row] for row in rows),
            labels=self.labels[rows],
            pixels=None if self.pixels is None else self.pixels[rows],
            is_train=None if self.is_train is None else self.is_train[rows],
            split=None if self.split is None else _restricted(self.split, rows, len(self)),
        )

    def dataset(self, features: npt.NDArray[Any], where: str | None = None, **more: Any) -> ZeroShotDataset:
        """The dataset of a table that has descriptors and a split."""
        assert self.descriptors is not None and self.split is not None
        return ZeroShotDataset.from_arrays(
            features,
            self.labels,
            self.descriptors,
            self.class_names,
            train=self.split.train,
            test_seen=self.split.test_seen,
            test_unseen=self.split.test_unseen,
            name=self.name,
            where=where,
            **more,
        )

    def like(self, dataset: ZeroShotDataset) -> ImageTable:
        """The pictures of `dataset`, in its order, with its labels, descriptors and split.

        Rows are joined by the last two parts of the image paths: class ids and row order differ between publications.
        """
        if dataset.image_files is None:
            raise DataError(f"{dataset.name}: does not name its image files; rows cannot be joined without them")
        rows = {folder_and_file(file): row for row, file in enumerate(self.files)}
        if len(rows) < len(self):
            raise DataError(
                f"{self.name}: two images have the same folder and file name; rows cannot be joined by them"
            )
        found = np.array([rows.get(folder_and_file(file), -1) for file in dataset.image_files], dtype=np.int64)
        there = np.flatnonzero(found >= 0)
        if not len(there):
            raise DataError(
                f"{self.name}: none of the {len(self)} images is one of {dataset.name}'s, such as "
                f"{folder_and_file(dataset.image_files[0])}"
            )
        return replace(
            self.take(found[there]),
            name=dataset.name,
            labels=dataset.labels[there],
            class_names=dataset.class_names,
            descriptors=dataset.descriptors,
            split=_restricted(dataset.split, there, dataset.n_rows),
            provenance={key: dataset.provenance[key] for key in ("attributes", "split") if key in dataset.provenance},
        )


def folder_and_file(path: str) -> str:
    """The last two parts of an image path, which are the same on every machine."""
    return "/".join(path.strip().replace("\\", "/").split("/")[-2:])


def _restricted(split: Split, rows: IntArray, n_rows: int) -> Split:
    """The split of a table of which only `rows` are left, in that order."""
    position = np.full(n_rows, -1)
    position[rows] = np.arange(len(rows))
    parts = (position[part] for part in (split.train, split.test_seen, split.test_unseen))
    return Split(*(part[part >= 0] for part in parts))
