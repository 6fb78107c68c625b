"""Where pictures and their labels come from (a folder per class, a CSV table, CUB, glyphs), and how they are read."""

from __future__ import annotations

import csv
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from classnorm.data import glyphs
from classnorm.data.cub import read_cub, read_cub_split
from classnorm.data.image_table import Images, ImageTable, folder_and_file
from classnorm.errors import DataError

__all__ = [
    "class_folders",
    "find_images",
    "image_signature",
    "list_images",
    "read_image_split",
    "read_images",
]

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})


def find_images(source: str | Path) -> ImageTable:
    """The pictures of a source.

    Args:
        source: ``glyphs`` or ``glyphs-light``; a folder with a folder per class; a folder in CUB's layout
            (`images.txt`, `image_class_labels.txt`, `classes.txt`, and where there are any, `train_test_split.txt` and
            attributes); or a `.csv` file with the columns path and label, its paths relative to its folder.
    """
    if str(source) in ("glyphs", "glyphs-light") and not Path(source).exists():
        table = ImageTable.of(glyphs.load("light" if str(source) == "glyphs-light" else "full"))
        return replace(table, provenance={key: text for key, text in table.provenance.items() if key != "features"})
    path = Path(source)
    if path.is_dir():
        table = read_cub(path) if (path / "images.txt").is_file() else _folder_per_class(path)
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
    return {image: source.parent / image for (image,) in _csv_images(source, ("path",))}


def read_image_split(path: Path, image_files: Sequence[str] | None) -> npt.NDArray[np.bool_]:
    """Read an official split of images: [n_rows], true for training images.

    Args:
        path: CUB's `train_test_split.txt`, with its `images.txt` beside it, or a CSV file with the columns `path` and
            `is_train`.
        image_files: the file of each row; the last two parts of a path, the folder of the class and the file, are
            compared.
    """
    if image_files is None:
        raise DataError(f"{path}: the dataset does not name its image files, so its rows cannot be found in this split")
    if not path.is_file():
        raise DataError(f"{path}: no such file; give CUB's train_test_split.txt or a CSV file")
    is_csv = path.suffix.lower() == ".csv"
    entries = [cells for _, cells in _csv_cells(path, ("path", "is_train"))] if is_csv else read_cub_split(path)
    is_train: dict[str, bool] = {}
    for file, flag in entries:
        key, value = folder_and_file(file), {"1": True, "true": True, "0": False, "false": False}.get(flag.lower())
        if value is None:
            raise DataError(f"{path}: is_train of {file} is {flag!r}; it must be 1 or 0")
        if is_train.setdefault(key, value) != value:
            raise DataError(f"{path}: {key} is both a training and a test image; name it once")
    missing = [file for file in image_files if folder_and_file(file) not in is_train]
    if missing:
        raise DataError(
            f"{path}: {len(missing)} of the {len(image_files)} images are not in this split, the first is {missing[0]}"
        )
    return np.array([is_train[folder_and_file(file)] for file in image_files], dtype=bool)


def _csv_cells(path: Path, columns: tuple[str, ...]) -> list[tuple[int, tuple[str, ...]]]:
    """(number of the line, its cells in these columns)."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{path}: no column {missing[0]!r}; the first line must name {' and '.join(columns)}")
            return [(reader.line_num, tuple((row[column] or "").strip() for column in columns)) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from error


def _csv_images(path: Path, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The cells in these columns, none of them empty; the first is a file and occurs once."""
    rows = _csv_cells(path, columns)
    lines: dict[str, int] = {}
    for line, cells in rows:
        if "" in cells:
            raise DataError(f"{path}: line {line} lacks a {columns[cells.index('')]}")
        if cells[0] in lines:
            raise DataError(f"{path}: {cells[0]} is on line {lines[cells[0]]} and again on line {line}; keep one")
        lines[cells[0]] = line
    return [cells for _, cells in rows]


def _csv(path: Path) -> ImageTable:
    rows = _csv_images(path, ("path", "label"))
    names = tuple(sorted({label for _, label in rows}))
    position = {name: i for i, name in enumerate(names)}
    labels = np.array([position[label] for _, label in rows], dtype=np.int64)
    return ImageTable(path.stem, tuple(image for image, _ in rows), labels, names, path.parent)
