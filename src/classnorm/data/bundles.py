"""Bundles. An `.npz` bundle has features, labels, descriptors, class names and the split in one file; a folder bundle
has the features in shards, for data larger than memory.

In a folder, `dataset.json` lists the shards and `table.npz` holds the other arrays of a bundle. It is written as
`FOLDER.parts`, shard by shard, and gets its name when it is complete.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from classnorm.data.checks import check_array, converted_blocks
from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.image_table import ImageTable
from classnorm.data.provenance import Provenance
from classnorm.data.row_store import MEMORY, DType, Features, FloatArray, RowStore, open_shard
from classnorm.errors import DataError, OutputError
from classnorm.io.arrays import Array, read_npy, read_npz, texts
from classnorm.io.documents import Count, Positive, check_shape, read_json
from classnorm.io.files import make_folder, replacing, write_json
from classnorm.progress import report

_KEYS = ("labels", "descriptors", "class_names", "train_idx", "test_seen_idx", "test_unseen_idx")
_OPTIONAL = ("name", "image_files", "is_train", "provenance", "attribute_names")


def load_bundle(path: Path, max_bytes: int | None = None) -> ZeroShotDataset:
    """Read a bundle; large uncompressed arrays are memory-mapped. `max_bytes` limits what it may unpack to."""
    content = read_npz(path, ("features", *_KEYS), _OPTIONAL, max_bytes)
    return dataset_of(content["features"], content, path)


def dataset_of(features: Features, content: dict[str, Array], path: Path) -> ZeroShotDataset:
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
        provenance=Provenance.from_array(content.get("provenance"), path),
        image_files=texts(content["image_files"], f"{path}: image_files") if "image_files" in content else None,
        is_train=content.get("is_train"),
        attribute_names=texts(content["attribute_names"], f"{path}: attribute_names")
        if "attribute_names" in content
        else None,
    )


def read_table(path: Path, whole: bool = True) -> dict[str, Array]:
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
        "provenance": table.provenance.as_array(),
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


MANIFEST = "dataset.json"
TABLE = "table.npz"
_FORMAT, _VERSION = "classnorm-dataset", 1
_SHARD_BYTES = 1 << 27  # of a shard, by default


class ShardEntry(TypedDict):
    file: str
    rows: NotRequired[Count]
    sha256: NotRequired[str]
    min: NotRequired[float]


class PartEntry(TypedDict):
    number: Positive
    of: Positive
    split: NotRequired[dict[str, Any] | None]


class FolderDocument(TypedDict):
    """`dataset.json`."""

    shards: list[ShardEntry]
    part: NotRequired[PartEntry]


class ShardRecord(TypedDict):
    """What is recorded beside a shard until the folder is complete."""

    key: str
    shard: ShardEntry
    facts: dict[str, Any]


def is_folder_bundle(path: Path) -> bool:
    """Whether the folder is a complete folder bundle."""
    return path.is_dir() and (path / MANIFEST).is_file()


def load_folder(path: Path, memory: float = MEMORY) -> ZeroShotDataset:
    """Open a folder bundle; its features are read when they are used.

    Args:
        memory: GiB of rows that may be loaded at once, for methods that need them all.
    """
    document = read_manifest(path)
    if part := document.get("part"):
        raise DataError(
            f"{path}: is part {part['number']} of {part['of']} of a dataset; join all parts with classnorm data merge"
        )
    return dataset_of(read_store(path, memory), read_table(path / TABLE), path)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read `dataset.json`."""
    remedy = "copy or write the folder again"
    document: dict[str, Any] = read_json(path / MANIFEST, dict[str, Any], remedy)
    if document.get("format") != _FORMAT:
        raise DataError(f'{path / MANIFEST}: not a folder bundle; it must contain "format": "{_FORMAT}"')
    if document.get("version") != _VERSION:
        raise DataError(f"{path / MANIFEST}: version {document.get('version')} is not understood; update classnorm")
    check_shape(document, FolderDocument, str(path / MANIFEST), remedy)
    if not document["shards"]:
        raise DataError(f'{path / MANIFEST}: "shards" must be a list of objects with a "file", and not empty')
    return document


def read_store(path: Path, memory: float = MEMORY) -> RowStore:
    """Open the features of a folder bundle."""
    entries: list[dict[str, Any]] = read_manifest(path)["shards"]
    shards = tuple(open_shard(path.resolve() / entry["file"]) for entry in entries)
    for shard, entry in zip(shards, entries, strict=True):
        if shard.rows != entry.get("rows", shard.rows):
            raise DataError(f"{shard.path}: has {shard.rows} rows, but {entry['rows']} in {MANIFEST}; copy it again")
        if (shard.dimensions, shard.dtype) != (shards[0].dimensions, shards[0].dtype):
            raise DataError(
                f"{shard.path}: {shard.dimensions} dimensions in {shard.dtype}, but {shards[0].dimensions} in "
                f"{shards[0].dtype} in the first shard; all must be alike"
            )
    hashes = tuple(str(entry["sha256"]) for entry in entries if "sha256" in entry)
    lowest = [float(entry["min"]) for entry in entries if "min" in entry]
    return RowStore(
        str(path),
        shards,
        hashes if len(hashes) == len(shards) else None,
        min(lowest) if len(lowest) == len(shards) else None,
        memory,
    )


def shard_ranges(n_rows: int, row_bytes: int, rows_per_shard: int | None = None) -> list[range]:
    """Rows of each shard; by default shards have 128 MiB."""
    length = rows_per_shard or max(1, _SHARD_BYTES // row_bytes)
    return [range(start, min(start + length, n_rows)) for start in range(0, n_rows, length)]


def save_folder(
    dataset: ZeroShotDataset,
    path: Path,
    dtype: DType | None = None,
    rows_per_shard: int | None = None,
) -> None:
    """Write `dataset` as a folder bundle, with one shard in memory at a time."""
    kind = np.dtype(dtype or dataset.features.dtype)
    ranges = shard_ranges(dataset.n_rows, kind.itemsize * dataset.d_z, rows_per_shard)
    with FolderWriter(path) as writer:
        for number, rows in enumerate(converted_blocks(dataset.features, kind, len(ranges[0]))):
            writer.write(number, rows)
            report(ranges[number].stop, dataset.n_rows)
        writer.finish(ImageTable.of(dataset), len(ranges))


class FolderWriter:
    """Writes a folder bundle. With a key, an interrupted writer of the same key has left its shards to resume from."""

    def __init__(self, path: Path, key: str | None = None) -> None:
        if path.suffix == ".npz":
            raise OutputError(f"{path}: a folder is written here; choose a name without .npz")
        if path.exists() and not is_folder_bundle(path) and not (path.is_dir() and not any(path.iterdir())):
            raise OutputError(f"{path}: exists and is not a folder bundle; choose another location or delete it")
        self.path, self.resumable = path, key is not None
        self.key = key or uuid.uuid4().hex
        self.folder = path.with_name(f"{path.name}.parts")

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Leave no shards that cannot be resumed from."""
        if kind is not None and not self.resumable:
            shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, number: int, rows: FloatArray, **facts: Any) -> None:
        """Check and write the rows of a shard, which may be none, and record facts about it."""
        rows = np.ascontiguousarray(check_array(rows, f"{self.path}, shard {number}"))
        make_folder(self.folder)
        self._file(number, ".json").unlink(missing_ok=True)
        with replacing(self._file(number)) as temporary, temporary.open("wb") as file:
            np.lib.format.write_array(file, rows, allow_pickle=False)
        entry = {"file": self._file(number).name, "rows": len(rows)}
        entry["sha256"] = hashlib.sha256(rows.data).hexdigest()
        if len(rows):
            entry["min"] = float(rows.min())
        write_json(self._file(number, ".json"), {"key": self.key, "shard": entry, "facts": facts})

    def facts(self, number: int) -> dict[str, Any] | None:
        """The facts recorded with a finished shard; None if it has to be written."""
        record = self._record(number)
        if record is None:
            return None
        try:
            written = np.asarray(read_npy(self._file(number)))
        except DataError:
            return None
        is_whole = hashlib.sha256(np.ascontiguousarray(written).data).hexdigest() == record["shard"].get("sha256")
        return record["facts"] if is_whole else None

    def _record(self, number: int) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = read_json(self._file(number, ".json"), ShardRecord, "")
        except DataError:
            return None
        return record if record["key"] == self.key and self._file(number).is_file() else None

    def finish(self, table: ImageTable, n_shards: int, part: Mapping[str, Any] | None = None) -> None:
        """Complete the folder with everything but the features, and give it its name."""
        records = filter(None, map(self._record, range(n_shards)))
        shards = [record["shard"] for record in records if record["shard"]["rows"]]
        if sum(shard["rows"] for shard in shards) != len(table):
            raise OutputError(f"{self.folder}: its shards have changed; run the command again")
        write_bundle(self.folder / TABLE, table, None)
        document = {"format": _FORMAT, "version": _VERSION, **({"part": part} if part else {}), "shards": shards}
        write_json(self.folder / MANIFEST, document)
        kept = {MANIFEST, TABLE, *(shard["file"] for shard in shards)}
        for file in self.folder.iterdir():
            if file.name not in kept:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        self._publish()

    def _publish(self) -> None:
        old = self.path.with_name(f".{self.path.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        try:
            if self.path.exists():
                self.path.rename(old)
            self.folder.rename(self.path)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}; the result is in {self.folder}") from error
        shutil.rmtree(old, ignore_errors=True)

    def _file(self, number: int, suffix: str = ".npy") -> Path:
        return self.folder / f"features-{number:05d}{suffix}"


def shards_of(path: Path) -> Iterator[FloatArray]:
    """Read the shards of a folder bundle one by one, checked against their recorded checksums."""
    store = read_store(path)
    for number, shard in enumerate(store.shards):
        rows = RowStore(store.where, (shard,))[:]
        if store.hashes is not None and hashlib.sha256(rows.data).hexdigest() != store.hashes[number]:
            raise DataError(f"{shard.path}: is not as it was written; copy it again")
        yield rows
