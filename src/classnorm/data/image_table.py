"""`ImageTable`: images with labels, before features are extracted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from classnorm.data.checks import check_descriptors
from classnorm.data.dataset import Split, ZeroShotDataset
from classnorm.data.provenance import Provenance
from classnorm.data.row_store import Features, IntArray
from classnorm.errors import DataError

Images: TypeAlias = Sequence[Path] | npt.NDArray[np.uint8]
"""Files, or pixels [n, height, width] or [n, height, width, 3]."""


@dataclass(frozen=True, eq=False)
class ImageTable:
    """Images with labels, and optionally descriptors and a split."""

    name: str
    files: tuple[str, ...]  # as named by the source; empty if it has no file names
    labels: IntArray  # index into class_names
    class_names: tuple[str, ...]  # empty if the images have no labels
    root: Path = Path()  # folder of relative files
    pixels: npt.NDArray[np.uint8] | None = None  # instead of files
    is_train: npt.NDArray[np.bool_] | None = None
    descriptors: npt.NDArray[np.float32] | None = None
    split: Split | None = None
    provenance: Provenance = field(default_factory=Provenance)  # of descriptors and split
    attribute_names: tuple[str, ...] | None = None  # columns of the descriptors

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, dataset: ZeroShotDataset) -> ImageTable:
        """Return the table of a dataset: everything but the features."""
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
            attribute_names=dataset.attribute_names,
        )

    @cached_property
    def images(self) -> Images:
        return [self.root / file for file in self.files] if self.pixels is None else self.pixels

    def take(self, rows: IntArray) -> ImageTable:
        """Keep only these rows, in this order."""
        return replace(
            self,
            files=tuple(self.files[row] for row in rows),
            labels=self.labels[rows],
            pixels=None if self.pixels is None else self.pixels[rows],
            is_train=None if self.is_train is None else self.is_train[rows],
            split=None if self.split is None else _restricted(self.split, rows, len(self)),
        )

    def check(self) -> None:
        """Validate descriptors and split, before hours are spent on features."""
        if self.descriptors is not None and self.split is not None:
            self.dataset(np.zeros((len(self), 1), dtype=np.float32))
        elif self.descriptors is not None:
            check_descriptors(self.descriptors, self.class_names, self.name)

    def dataset(self, features: Features, where: str | None = None) -> ZeroShotDataset:
        """Build the dataset. The table must have descriptors and a split."""
        assert self.descriptors is not None and self.split is not None
        return ZeroShotDataset.from_arrays(
            features,
            self.labels,
            self.descriptors,
            self.class_names,
            **self.split.parts,
            name=self.name,
            where=where,
            provenance=self.provenance,
            image_files=self.files or None,
            is_train=self.is_train,
            images=self.pixels,
            attribute_names=self.attribute_names,
        )

    def like(self, dataset: ZeroShotDataset) -> ImageTable:
        """Select the images of `dataset`, in its order and with its labels, descriptors and split.

        Rows are matched by the last two parts of the image paths, since class ids and row order differ between
        publications.
        """
        if dataset.image_files is None:
            raise DataError(f"{dataset.name}: has no image file names, which are needed to match rows")
        rows = {folder_and_file(file): row for row, file in enumerate(self.files)}
        if len(rows) < len(self):
            raise DataError(f"{self.name}: two images have the same folder and file name, so rows cannot be matched")
        matches = np.array([rows.get(folder_and_file(file), -1) for file in dataset.image_files], dtype=np.int64)
        matched = np.flatnonzero(matches >= 0)
        if not len(matched):
            raise DataError(
                f"{self.name}: none of the {len(self)} images is one of {dataset.name}'s, such as "
                f"{folder_and_file(dataset.image_files[0])}"
            )
        return replace(
            self.take(matches[matched]),
            name=dataset.name,
            labels=dataset.labels[matched],
            class_names=dataset.class_names,
            descriptors=dataset.descriptors,
            split=_restricted(dataset.split, matched, dataset.n_rows),
            provenance=dataset.provenance.only("attributes", "split", *dataset.provenance.of_text),
            attribute_names=dataset.attribute_names,
        )


def folder_and_file(path: str) -> str:
    """Return the last two parts of an image path, which do not depend on the machine."""
    return "/".join(path.strip().replace("\\", "/").split("/")[-2:])


def _restricted(split: Split, rows: IntArray, n_rows: int) -> Split:
    """Return the split of a table reduced to `rows`, in that order."""
    position = np.full(n_rows, -1)
    position[rows] = np.arange(len(rows))
    parts = (position[part] for part in split.parts.values())
    return Split(*(part[part >= 0] for part in parts))
