"""`.npz` bundles: features, labels, descriptors, class names and the split in one file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.dataset import FloatArray, ZeroShotDataset, converted_blocks
from classnorm.data.image_table import ImageTable
from classnorm.data.row_store import DType, Features
from classnorm.errors import DataError
from classnorm.files import replacing

__all__ = [
    "dataset_of",
    "load_bundle",
    "provenance_of",
    "read_npz",
    "read_table",
    "save_bundle",
    "texts",
    "write_bundle",
]

_KEYS = ("labels", "descriptors", "class_names", "train_idx", "test_seen_idx", "test_unseen_idx")
_OPTIONAL = ("name", "image_files", "is_train", "provenance", "attribute_names")

Arrays = dict[str, npt.NDArray[Any]]


def load_bundle(path: Path) -> ZeroShotDataset:
    """Read a bundle; large uncompressed arrays are memory-mapped."""
    content = read_npz(path, ("features", *_KEYS), _OPTIONAL)
    return dataset_of(content["features"], content, path)


def dataset_of(features: Features, content: Arrays, path: Path) -> ZeroShotDataset:
    """Build the dataset of the features and the other arrays of a bundle."""
    return ZeroShotDataset.from_arrays(
        features,
        content["labels"],
        content["descriptors"],
        texts(content["class_names"]),
        train=content["train_idx"],
        test_seen=content["test_seen_idx"],
        test_unseen=content["test_unseen_idx"],
        name="".join(texts(content["name"])) if "name" in content else path.stem,
        where=str(path),
        provenance=provenance_of(content, path),
        image_files=texts(content["image_files"]) if "image_files" in content else None,
        is_train=content.get("is_train"),
        attribute_names=texts(content["attribute_names"]) if "attribute_names" in content else None,
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
        "labels": table.labels,
        "descriptors": table.descriptors,
        "class_names": np.array(table.class_names),
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


def read_npz(path: Path, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> Arrays:
    """Read arrays of an `.npz` file without unpickling; large uncompressed arrays are memory-mapped."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: a single array, not an .npz bundle")
        with archive:
            missing = [key for key in keys if key not in archive]
            if missing:
                raise DataError(f"{path}: the array {missing[0]!r} is missing; a bundle contains {', '.join(keys)}")
            return {key: _mapped(path, key, archive) for key in (*keys, *optional) if key in archive}
    except (DataError, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many types on a damaged file
        raise DataError(f"{path}: not a readable .npz bundle; it is damaged or was not written by np.savez") from error


def provenance_of(content: Arrays, path: Path) -> dict[str, str]:
    """Return the array `provenance`, strings of the form key=value, as a dict."""
    pairs = [pair.partition("=") for pair in texts(content.get("provenance", np.array([])))]
    if not all(separator for _, separator, _ in pairs):
        raise DataError(f"{path}: provenance must contain strings of the form key=value")
    return {key: value for key, _, value in pairs}


def texts(array: npt.NDArray[Any]) -> list[str]:
    """Return the entries of an array as strings, decoding bytes."""
    return [text.decode() if isinstance(text, bytes) else str(text) for text in array.reshape(-1).tolist()]


def _mapped(path: Path, key: str, archive: Any) -> npt.NDArray[Any]:
    """Return an array of the archive; memory-mapped if it is uncompressed and at least 1 MB."""
    info = archive.zip.getinfo(f"{key}.npy" if f"{key}.npy" in archive.zip.namelist() else key)
    with archive.zip.open(info) as entry:
        version = np.lib.format.read_magic(entry)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(entry)
        header_length = entry.tell()
    if dtype.hasobject:
        raise DataError(
            f"{path}: the array {key!r} holds Python objects, which are never loaded; "
            "save numbers as numbers and names with np.array(names, dtype=str)"
        )
    if info.compress_type != zipfile.ZIP_STORED or info.file_size < 1 << 20:
        return np.asarray(archive[key])
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)  # local header: lengths of the name and the extra field
        offset = info.header_offset + 30 + int(np.frombuffer(file.read(4), dtype="<u2").sum()) + header_length
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C")
