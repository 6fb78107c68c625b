"""`.npz` bundles: features, labels, descriptors, class names and the split in one file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.dataset import ZeroShotDataset, converted_blocks
from classnorm.data.image_table import ImageTable
from classnorm.data.row_store import DType, Features, FloatArray
from classnorm.errors import DataError
from classnorm.io.arrays import Archive
from classnorm.io.files import replacing

_KEYS = ("labels", "descriptors", "class_names", "train_idx", "test_seen_idx", "test_unseen_idx")
_OPTIONAL = ("name", "image_files", "is_train", "provenance", "attribute_names")

Arrays = dict[str, npt.NDArray[Any]]


def load_bundle(path: Path, max_bytes: int | None = None) -> ZeroShotDataset:
    """Read a bundle; large uncompressed arrays are memory-mapped. `max_bytes` limits what it may unpack to."""
    content = read_npz(path, ("features", *_KEYS), _OPTIONAL, max_bytes)
    return dataset_of(content["features"], content, path)


def dataset_of(features: Features, content: Arrays, path: Path) -> ZeroShotDataset:
    """Build the dataset of the features and the other arrays of a bundle."""
    return ZeroShotDataset.from_arrays(
        features,
        content["labels"],
        content["descriptors"],
        texts(content["class_names"], f"{path}: class_names"),
        train=content["train_idx"],
        test_seen=content["test_seen_idx"],
        test_unseen=content["test_unseen_idx"],
        name="".join(texts(content["name"], f"{path}: name")) if "name" in content else path.stem,
        where=str(path),
        provenance=provenance_of(content, path),
        image_files=texts(content["image_files"], f"{path}: image_files") if "image_files" in content else None,
        is_train=content.get("is_train"),
        attribute_names=texts(content["attribute_names"], f"{path}: attribute_names")
        if "attribute_names" in content
        else None,
    )


def read_table(path: Path, whole: bool = True) -> Arrays:
    """Read the arrays of a bundle without its features; if not `whole`, descriptors and split may be missing."""
    needed = _KEYS if whole else ("labels", "class_names")
    return read_npz(path, needed, tuple(key for key in (*_KEYS, *_OPTIONAL) if key not in needed))


def save_bundle(dataset: ZeroShotDataset, path: Path, dtype: DType | None = None) -> None:
    """Write `dataset` as an uncompressed bundle, which can be memory-mapped, with features in this precision."""
    write_bundle(path, ImageTable.of(dataset), converted_blocks(dataset.features, dtype or dataset.features.dtype))


def write_bundle(path: Path, table: ImageTable, features: Iterable[FloatArray] | None) -> None:
    """Write an uncompressed bundle of a table and its features, given as blocks of rows; None leaves them out."""
    arrays: dict[str, npt.NDArray[Any] | None] = {
        "labels": table.labels if table.class_names else None,
        "descriptors": table.descriptors,
        "class_names": np.array(table.class_names) if table.class_names else None,
        **{f"{part}_idx": rows for part, rows in (table.split.parts.items() if table.split else ())},
        "name": np.array(table.name),
        "provenance": np.array([f"{key}={value}" for key, value in table.provenance.items()], dtype=np.str_),
        "image_files": np.array(table.files) if table.files else None,
        "is_train": table.is_train,
        "attribute_names": None if table.attribute_names is None else np.array(table.attribute_names),
    }
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        if features is not None:
            with archive.open("features.npy", "w", force_zip64=True) as file:
                for number, block in enumerate(features):
                    if not number:
                        header = np.lib.format.header_data_from_array_1_0(block)
                        header |= {"fortran_order": False, "shape": (len(table), block.shape[1])}
                        np.lib.format.write_array_header_1_0(file, header)
                    file.write(block.tobytes())
        for key, array in arrays.items():
            if array is not None:
                with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)


def read_npz(path: Path, keys: tuple[str, ...], optional: tuple[str, ...] = (), max_bytes: int | None = None) -> Arrays:
    """Read arrays of an `.npz` file without unpickling; large uncompressed arrays are memory-mapped."""
    with Archive(path, max_bytes) as archive:
        missing = [key for key in keys if key not in archive]
        if missing:
            raise DataError(f"{path}: the array {missing[0]!r} is missing; a bundle contains {', '.join(keys)}")
        return {key: archive.read(key) for key in (*keys, *optional) if key in archive}


def provenance_of(content: Arrays, path: Path) -> dict[str, str]:
    """Return the array `provenance`, strings of the form key=value, as a dict."""
    pairs = [pair.partition("=") for pair in texts(content.get("provenance", np.array([])), str(path))]
    if not all(separator for _, separator, _ in pairs):
        raise DataError(f"{path}: provenance must contain strings of the form key=value")
    return {key: value for key, _, value in pairs}


def texts(array: npt.NDArray[Any], where: str = "") -> list[str]:
    """Return the entries of an array as strings, decoding bytes."""
    try:
        entries = [text.decode() if isinstance(text, bytes) else str(text) for text in array.reshape(-1).tolist()]
        "".join(entries).encode()
    except (UnicodeError, ValueError) as error:  # bytes that are no UTF-8, half a character, a code that is none
        raise DataError(
            f"{where and f'{where}: '}holds names that are no text; write them as np.array(names)"
        ) from error
    return entries
