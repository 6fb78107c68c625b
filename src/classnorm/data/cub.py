"""CUB-200-2011 as published: text files with lines of the form `ID TEXT`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from classnorm.data.attribute_names import find_attribute_names
from classnorm.data.image_table import ImageTable
from classnorm.errors import DataError


def read_cub(root: Path) -> ImageTable:
    """Read the images of CUB's folder with their classes, and the split and attributes if present."""
    files, label_ids, class_names = (
        _numbered(root / f"{name}.txt") for name in ("images", "image_class_labels", "classes")
    )
    position = {number: i for i, number in enumerate(class_names)}
    for number, file in files.items():
        if label_ids.get(number) not in position:
            raise DataError(f"{root / 'image_class_labels.txt'}: image {number} ({file}) has no class in classes.txt")
    is_train = None
    if (root / "train_test_split.txt").is_file():
        flags = _numbered(root / "train_test_split.txt")
        if not all(flags.get(number) in ("0", "1") for number in files):
            raise DataError(f"{root / 'train_test_split.txt'}: must contain 0 or 1 for each image in images.txt")
        is_train = np.array([flags[number] == "1" for number in files])
    names, descriptors = read_cub_classes(root)
    return ImageTable(
        root.resolve().name,
        tuple(files.values()),
        np.array([position[label_ids[number]] for number in files], dtype=np.int64),
        names,
        root / "images",
        is_train=is_train,
        descriptors=descriptors,
        provenance={} if descriptors is None else {"attributes": "continuous, in percent"},
        attribute_names=None if descriptors is None else cub_attribute_names(root, descriptors.shape[1]),
    )


def read_cub_classes(root: Path) -> tuple[tuple[str, ...], npt.NDArray[np.float32] | None]:
    """Read the class names of CUB's folder, and their attributes [n_classes, d_a] if present."""
    names = tuple(_numbered(root / "classes.txt").values())
    path = root / "attributes" / "class_attribute_labels_continuous.txt"
    if not path.is_file():
        return names, None
    try:
        table: npt.NDArray[np.float32] = np.loadtxt(path, dtype=np.float32, ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a table of numbers ({error})") from error
    if len(table) != len(names):
        raise DataError(f"{path}: {len(table)} rows for {len(names)} classes; it must have one per class")
    return names, table


def cub_attribute_names(root: Path, d_a: int) -> tuple[str, ...] | None:
    """Read `attributes.txt`, which the published archive has beside CUB's folder, if it is there."""
    return find_attribute_names(root, d_a) or find_attribute_names(root.resolve().parent, d_a)


def read_cub_split(path: Path) -> list[tuple[str, str]]:
    """Read (image, flag) from each line of `train_test_split.txt`; `images.txt` must be in the same folder."""
    names = path.with_name("images.txt")
    flags, files = _numbered(path), _numbered(names)
    unknown = next((number for number in flags if number not in files), None)
    if unknown is not None:
        raise DataError(f"{path}: image {unknown} is not in {names}")
    return [(files[number], flag) for number, flag in flags.items()]


def _numbered(path: Path) -> dict[str, str]:
    """Read a file with lines `ID TEXT`."""
    try:
        lines = [line.split(maxsplit=1) for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable ({error}); CUB's layout requires it") from error
    for line in lines:
        if len(line) != 2:
            raise DataError(f"{path}: the line {' '.join(line)!r} is not of the form: number text")
    return {number: text.strip() for number, text in lines}
