"""Pictures and their labels: a folder per class, a CSV table, CUB's own layout, the embedded glyphs."""

from __future__ import annotations

import csv
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from classnorm.data import glyphs
from classnorm.data.dataset import IntArray, Split, ZeroShotDataset
from classnorm.errors import DataError

__all__ = [
    "ImageTable",
    "Images",
    "class_folders",
    "find_images",
    "image_signature",
    "list_images",
    "read_cub_classes",
    "read_images",
]

Images: TypeAlias = Sequence[Path] | npt.NDArray[np.uint8]
"""Files, or pixels [n, height, width] or [n, height, width, 3]."""

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
_ATTRIBUTES = Path("attributes") / "class_attribute_labels_continuous.txt"


@dataclass(frozen=True, eq=False)
class ImageTable:
    """Pictures with their labels, and as much of a dataset as their source tells."""

    name: str
    files: tuple[str, ...]  # as the source names them
    labels: IntArray  # index into class_names
    class_names: tuple[str, ...]
    root: Path = Path()  # where relative files lie
    pixels: npt.NDArray[np.uint8] | None = None  # instead of files on disk
    is_train: npt.NDArray[np.bool_] | None = None
    descriptors: npt.NDArray[np.float32] | None = None
    split: Split | None = None
    provenance: dict[str, str] = field(default_factory=dict)  # of descriptors and split

    def __len__(self) -> int:
        return len(self.files)

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
        rows = {_last_two(file): row for row, file in enumerate(self.files)}
        if len(rows) < len(self):
            raise DataError(
                f"{self.name}: two images have the same folder and file name; rows cannot be joined by them"
            )
        found = np.array([rows.get(_last_two(file), -1) for file in dataset.image_files], dtype=np.int64)
        there = np.flatnonzero(found >= 0)
        if not len(there):
            raise DataError(
                f"{self.name}: none of the {len(self)} images is one of {dataset.name}'s, such as "
                f"{_last_two(dataset.image_files[0])}"
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


def find_images(source: str | Path) -> ImageTable:
    """The pictures of a source.

    Args:
        source: ``glyphs`` or ``glyphs-light``; a folder with a folder per class; a folder in CUB's layout
            (`images.txt`, `image_class_labels.txt`, `classes.txt`, and where there are any, `train_test_split.txt` and
            attributes); or a `.csv` file with the columns path and label, its paths relative to its folder.
    """
    if str(source) in ("glyphs", "glyphs-light") and not Path(source).exists():
        return _glyphs("light" if str(source) == "glyphs-light" else "full")
    path = Path(source)
    if path.is_dir():
        table = _cub(path) if (path / "images.txt").is_file() else _folder_per_class(path)
    elif path.suffix.lower() == ".csv":
        table = _csv(path)
    else:
        what = "not a folder or .csv file" if path.exists() else "no such folder or file"
        raise DataError(f"{path}: {what}; give a folder per class, CUB's folder, a CSV with path,label, or glyphs")
    if not len(table):
        flat = path.is_dir() and any(file.suffix.lower() in _SUFFIXES for file in path.iterdir())
        what = "the images are in no class folders" if flat else "no images there"
        raise DataError(f"{path}: {what}; give a folder that holds a folder of images per class")
    return table


def read_images(
    images: Images,
    rows: Iterable[int],
    prepare: Callable[[Image.Image], npt.NDArray[np.uint8]],
    *,
    ahead: int = 64,
    threads: int | None = None,
) -> Iterator[npt.NDArray[np.uint8] | str]:
    """What `prepare` makes of each picture, in order, or the reason why it cannot be read.

    Threads decode while the caller works; at most `ahead` results wait for it.
    """

    def read(row: int) -> npt.NDArray[np.uint8] | str:
        try:
            if isinstance(images, np.ndarray):
                return prepare(Image.fromarray(images[row]))
            with Image.open(images[row]) as image:
                return prepare(ImageOps.exif_transpose(image))  # upright, as people see it
        except MemoryError:
            raise
        except FileNotFoundError:
            return "no such file"
        except Exception as error:  # Pillow raises many kinds on a damaged file
            reason = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
            return " ".join(reason.split())[:100] or type(error).__name__

    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        waiting: deque[Future[npt.NDArray[np.uint8] | str]] = deque()
        try:
            for row in rows:
                waiting.append(pool.submit(read, row))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def image_signature(images: Images, rows: Sequence[int]) -> str:
    """SHA-256 that changes when one of these pictures does: of pixels, or of file names, sizes and times."""
    digest = hashlib.sha256()
    for row in rows:
        image = images[row]
        if isinstance(image, Path):
            stat = image.stat() if image.is_file() else None
            digest.update(f"{image.absolute()}|{stat and (stat.st_size, stat.st_mtime_ns)}\n".encode())
        else:
            digest.update(np.ascontiguousarray(image).tobytes())
    return digest.hexdigest()


def _restricted(split: Split, rows: IntArray, n_rows: int) -> Split:
    """The split of a table of which only `rows` are left, in that order."""
    position = np.full(n_rows, -1)
    position[rows] = np.arange(len(rows))
    parts = (position[part] for part in (split.train, split.test_seen, split.test_unseen))
    return Split(*(part[part >= 0] for part in parts))


def _last_two(file: str) -> str:
    return "/".join(file.replace("\\", "/").split("/")[-2:])


def _glyphs(preset: str) -> ImageTable:
    data = glyphs.load(preset)
    return ImageTable(
        data.name,
        data.image_files or (),
        data.labels,
        data.class_names,
        pixels=data.images,
        descriptors=data.descriptors,
        split=data.split,
        provenance={key: value for key, value in data.provenance.items() if key != "features"},
    )


def _folder_per_class(root: Path) -> ImageTable:
    """Classes in the order of their names; a folder without images is a class without any."""
    folders = class_folders(root)
    files: list[str] = []
    labels: list[int] = []
    for label, folder in enumerate(folders):
        names = [file.relative_to(root).as_posix() for file in _images_below(folder)]
        files += names
        labels += [label] * len(names)
    classes = tuple(folder.name for folder in folders)
    return ImageTable(root.resolve().name, tuple(files), np.array(labels, dtype=np.int64), classes, root)


def class_folders(root: Path) -> list[Path]:
    """The folders in `root` but hidden ones, by name."""
    return sorted(folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def _images_below(folder: Path) -> list[Path]:
    """All images in `folder` and its folders but hidden ones, by name."""
    images = (file for file in folder.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
    shown = (file for file in images if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    return sorted(shown, key=lambda file: file.as_posix())


def list_images(source: Path) -> dict[str, Path] | None:
    """Name → file of images without labels; None if `source` is something else.

    They are one image, all in a folder and its folders, or those of a `.csv` file with a column path.
    """
    if source.is_dir():
        found = {file.relative_to(source).as_posix(): file for file in _images_below(source)}
        if not found:
            raise DataError(f"{source}: no images there; give a folder of images, an image, or a file of features")
        return found
    if source.suffix.lower() in _SUFFIXES:
        return {str(source): source}
    if source.suffix.lower() != ".csv" or not source.is_file():
        return None
    with source.open(encoding="utf-8-sig", errors="replace") as file:
        if "path" not in [cell.strip() for cell in next(csv.reader([file.readline()]), [])]:
            return None
    return {image: source.parent / image for _, (image,) in _csv_columns(source, ("path",))}


def _csv_columns(path: Path, columns: tuple[str, ...]) -> list[tuple[int, tuple[str, ...]]]:
    """(number of the line, its cells in these columns), none of them empty; the first is a file and occurs once."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{path}: no column {missing[0]!r}; the first line must name {' and '.join(columns)}")
            rows = [(reader.line_num, tuple((row[column] or "").strip() for column in columns)) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from error
    lines: dict[str, int] = {}
    for line, cells in rows:
        if "" in cells:
            raise DataError(f"{path}: line {line} lacks a {columns[cells.index('')]}")
        if cells[0] in lines:
            raise DataError(f"{path}: {cells[0]} is on line {lines[cells[0]]} and again on line {line}; keep one")
        lines[cells[0]] = line
    return rows


def _csv(path: Path) -> ImageTable:
    rows = [(image, label) for _, (image, label) in _csv_columns(path, ("path", "label"))]
    names = tuple(sorted({label for _, label in rows}))
    position = {name: i for i, name in enumerate(names)}
    labels = np.array([position[label] for _, label in rows], dtype=np.int64)
    return ImageTable(path.stem, tuple(image for image, _ in rows), labels, names, path.parent)


def _cub(root: Path) -> ImageTable:
    """CUB-200-2011 as it is published; everything is joined by id."""
    files, label_ids, class_names = (
        _numbered(root / f"{name}.txt") for name in ("images", "image_class_labels", "classes")
    )
    position = {number: i for i, number in enumerate(class_names)}
    for number, file in files.items():
        if label_ids.get(number) not in position:
            raise DataError(f"{root / 'image_class_labels.txt'}: no class of classes.txt for image {number} ({file})")
    is_train = None
    if (root / "train_test_split.txt").is_file():
        flags = _numbered(root / "train_test_split.txt")
        if not all(flags.get(number) in ("0", "1") for number in files):
            raise DataError(f"{root / 'train_test_split.txt'}: must say 0 or 1 for each image of images.txt")
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
    )


def read_cub_classes(root: Path) -> tuple[tuple[str, ...], npt.NDArray[np.float32] | None]:
    """Class names of CUB's layout, and their attributes [n_classes, d_a] where there are any."""
    names = tuple(_numbered(root / "classes.txt").values())
    path = root / _ATTRIBUTES
    return names, _cub_attributes(path, len(names)) if path.is_file() else None


def _numbered(path: Path) -> dict[str, str]:
    """The lines of a file, `ID TEXT` each, in order."""
    try:
        lines = [line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable ({error}); CUB's layout needs it") from error
    for line in lines:
        if len(line) != 2:
            raise DataError(f"{path}: the line {' '.join(line)!r} is not of the form: number text")
    return {number: text.strip() for number, text in lines}


def _cub_attributes(path: Path, n_classes: int) -> npt.NDArray[np.float32]:
    """[n_classes, d_a], in the order of classes.txt."""
    try:
        table: npt.NDArray[Any] = np.loadtxt(path, dtype=np.float32, ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a table of numbers ({error})") from error
    if len(table) != n_classes:
        raise DataError(f"{path}: {len(table)} rows for {n_classes} classes; one per class of classes.txt is expected")
    return table
