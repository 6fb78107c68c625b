"""Image sources: a folder per class, a CSV file, CUB-200-2011 as published, glyphs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PureWindowsPath

import numpy as np
import numpy.typing as npt

from classnorm.data import glyphs
from classnorm.data.dataset import Split
from classnorm.data.decoding import SUFFIXES
from classnorm.data.image_table import ImageTable, folder_and_file
from classnorm.data.names import find_attribute_names
from classnorm.data.provenance import Provenance
from classnorm.data.row_store import IntArray
from classnorm.data.table_files import csv_lines
from classnorm.errors import DataError


def find_images(source: str | Path) -> ImageTable:
    """List the images of a source, with their labels.

    Args:
        source: ``glyphs``, ``glyphs-light`` or ``glyphs-greek``; a folder with one folder per class; a folder in CUB's
            layout (`images.txt`, `image_class_labels.txt`, `classes.txt`, and optionally `train_test_split.txt` and
            attributes); or a `.csv` file with the columns `path` (relative to the file), `label` and optionally
            `split` (train or test; classes without training images are unseen).
    """
    if str(source) in glyphs.NAMES and not Path(source).exists():
        table = ImageTable.of(glyphs.load(glyphs.NAMES[str(source)]))
        return replace(table, provenance=table.provenance.without("features"))
    path = Path(source)
    if path.is_dir():
        table = read_cub(path) if (path / "images.txt").is_file() else _folder_per_class(path)
    elif path.suffix.lower() == ".csv":
        table = _csv(path)
    else:
        problem = "not a folder or .csv file" if path.exists() else "no such folder or file"
        raise DataError(f"{path}: {problem}; use a folder per class, CUB's folder, a CSV with path,label, or glyphs")
    if not len(table):
        flat = path.is_dir() and any(file.suffix.lower() in SUFFIXES for file in path.iterdir())
        problem = "the images are not in class folders" if flat else "no images there"
        raise DataError(f"{path}: {problem}; use a folder that contains one folder of images per class")
    return table


def _folder_per_class(root: Path) -> ImageTable:
    """List images with classes in alphabetical order; an empty folder is a class without images."""
    folders = class_folders(root)
    images = [(file, label) for label, folder in enumerate(folders) for file in _images_below(folder)]
    files = tuple(file.relative_to(root).as_posix() for file, _ in images)
    labels = np.array([label for _, label in images], dtype=np.int64)
    return ImageTable(root.resolve().name, files, labels, tuple(folder.name for folder in folders), root)


def class_folders(root: Path) -> list[Path]:
    """Return the visible folders in `root`, sorted."""
    return sorted(folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def _images_below(folder: Path) -> list[Path]:
    """Return all visible images in `folder` and its subfolders, sorted."""
    images = (file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    visible = (file for file in images if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    return sorted(visible, key=lambda file: file.as_posix())


def list_images(source: Path) -> dict[str, Path] | None:
    """Return name → file of images without labels, or None if `source` is not a source of images.

    Sources are an image, a folder (searched recursively), and a `.csv` file with a column `path`.
    """
    if source.is_dir():
        files = {file.relative_to(source).as_posix(): file for file in _images_below(source)}
        if not files:
            raise DataError(f"{source}: no images there; use a folder of images, an image, or a feature file")
        return files
    if source.suffix.lower() in SUFFIXES:
        return {str(source): source}
    if source.suffix.lower() != ".csv" or not source.is_file():
        return None
    if "path" not in _csv_columns(source):
        return None
    return {image: source.parent / image for (image,) in _csv_images(source, ("path",))}


def unlabelled_images(source: Path) -> ImageTable:
    """List the images of a source without labels, see `list_images`; the table has no classes."""
    images = list_images(source)
    if images is None:
        raise DataError(f"{source}: no images there; use an image, a folder, or a CSV file with the column path")
    root = source if source.is_dir() else source.parent if source.suffix.lower() == ".csv" else Path()
    return ImageTable(source.resolve().stem, tuple(images), np.zeros(len(images), dtype=np.int64), (), root)


def is_unlabelled(source: Path) -> bool:
    """Whether a source has no labels: an image, a folder of images without class folders, a CSV file without labels."""
    if source.is_dir():
        flat = any(file.suffix.lower() in SUFFIXES for file in source.iterdir())
        return flat and not (source / "images.txt").is_file() and not class_folders(source)
    if source.suffix.lower() == ".csv" and source.is_file():
        columns = _csv_columns(source)
        return "path" in columns and "label" not in columns
    return source.suffix.lower() in SUFFIXES


def files_below(folder: Path, image_files: Sequence[str]) -> list[Path]:
    """The image files of a dataset in a folder of this machine.

    Feature files name images as they lay where the features were made, such as `/data/SUN/images/a/abbey/x.jpg`. The
    first folders are left out, as many as it takes to find the first image; they are the same for all.
    """
    if not image_files:
        return []
    parts = PureWindowsPath(image_files[0]).parts  # either kind of slash
    for start in range(len(parts)):
        if folder.joinpath(*parts[start:]).is_file():
            return [folder.joinpath(*PureWindowsPath(file).parts[start:]) for file in image_files]
    raise DataError(
        f"{folder}: no {'/'.join(parts[-2:])} there nor in the folders of {image_files[0]}; "
        "name the folder that contains the images or their class folders"
    )


def read_image_split(path: Path, image_files: Sequence[str] | None) -> npt.NDArray[np.bool_]:
    """Read an official split of images: [n_rows], true for training images.

    Args:
        path: CUB's `train_test_split.txt`, next to `images.txt`, or a CSV file with columns `path` and `is_train`.
        image_files: image file of each row, matched by the last two parts of its path.
    """
    if image_files is None:
        raise DataError(f"{path}: the dataset has no image file names, so its rows cannot be matched to this split")
    if not path.is_file():
        raise DataError(f"{path}: no such file; use CUB's train_test_split.txt or a CSV file")
    is_csv = path.suffix.lower() == ".csv"
    entries = [cells for _, cells in _csv_cells(path, ("path", "is_train"))] if is_csv else read_cub_split(path)
    is_train: dict[str, bool] = {}
    for file, flag in entries:
        key, value = folder_and_file(file), {"1": True, "true": True, "0": False, "false": False}.get(flag.lower())
        if value is None:
            raise DataError(f"{path}: is_train of {file} is {flag!r}; it must be 1 or 0")
        if is_train.setdefault(key, value) != value:
            raise DataError(f"{path}: {key} is both a training and a test image; list it once")
    missing = [file for file in image_files if folder_and_file(file) not in is_train]
    if missing:
        raise DataError(
            f"{path}: {len(missing)} of the {len(image_files)} images are not in this split, first {missing[0]}"
        )
    return np.array([is_train[folder_and_file(file)] for file in image_files], dtype=bool)


def _csv_cells(path: Path, columns: tuple[str, ...]) -> list[tuple[int, tuple[str, ...]]]:
    """Return (line number, cells of these columns) for each row."""
    try:
        lines = [(number, cells) for number, cells in csv_lines(path) if cells]
    except csv.Error as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from error
    header = [cell.strip() for cell in lines[0][1]] if lines else []
    missing = [column for column in columns if column not in header]
    if missing:
        raise DataError(f"{path}: no column {missing[0]!r}; the first line must name {' and '.join(columns)}")
    index = [header.index(column) for column in columns]
    return [(number, tuple(cells[i].strip() if i < len(cells) else "" for i in index)) for number, cells in lines[1:]]


def _csv_columns(path: Path) -> list[str]:
    """The names in the first line; empty if it cannot be read."""
    try:
        return [cell.strip() for cell in next(csv_lines(path), (0, []))[1]]
    except (DataError, csv.Error):
        return []


def _csv_images(path: Path, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the cells of these columns. No cell may be empty, and the first, a file, must be unique."""
    rows = _csv_cells(path, columns)
    lines: dict[str, int] = {}
    for line, cells in rows:
        if "" in cells:
            raise DataError(f"{path}: line {line} has no {columns[cells.index('')]}")
        if cells[0] in lines:
            raise DataError(f"{path}: {cells[0]} is on line {lines[cells[0]]} and again on line {line}; keep one")
        lines[cells[0]] = line
    return [cells for _, cells in rows]


def _csv(path: Path) -> ImageTable:
    has_split = "split" in _csv_columns(path)
    rows = _csv_images(path, ("path", "label", "split") if has_split else ("path", "label"))
    names = tuple(sorted({label for _, label, *_ in rows}))
    position = {name: i for i, name in enumerate(names)}
    labels = np.array([position[label] for _, label, *_ in rows], dtype=np.int64)
    table = ImageTable(path.stem, tuple(image for image, *_ in rows), labels, names, path.parent)
    return replace(table, split=_named_split(path, labels, rows)) if has_split else table


def _named_split(path: Path, labels: IntArray, rows: Sequence[Sequence[str]]) -> Split:
    """The split that a column states; whether a test image is of a seen class follows from the training images."""
    words = {"train": True, "training": True, "test": False, "test_seen": False, "test_unseen": False}
    stated = np.array([word.casefold() for *_, word in rows])
    for (image, _, word), folded in zip(rows, stated, strict=True):
        if folded not in words:
            raise DataError(f"{path}: the split of {image} is {word!r}; it must be train or test")
    is_train = np.array([words[word] for word in stated], dtype=bool)
    if not is_train.any():
        raise DataError(f"{path}: no line has the split train")
    is_unseen = ~np.isin(labels, labels[is_train])
    wrong = np.flatnonzero(((stated == "test_seen") & is_unseen) | ((stated == "test_unseen") & ~is_unseen))
    if len(wrong):
        problem = "no training image" if is_unseen[wrong[0]] else "training images"
        raise DataError(f"{path}: an image is {stated[wrong[0]]}, but its class has {problem}; correct the split")
    return Split.from_masks(is_unseen, ~is_train)


# ---- CUB: text files with lines of the form `ID TEXT` --------------------------------------------------------


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
        provenance=Provenance.of(attributes=None if descriptors is None else "continuous, in percent"),
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
