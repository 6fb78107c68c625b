"""Parts of an extraction, for example one per machine, and how they are joined to one folder bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from classnorm.data import Split
from classnorm.data.bundles import (
    TABLE,
    FolderWriter,
    is_folder_bundle,
    read_manifest,
    read_store,
    read_table,
    shards_of,
)
from classnorm.data.image_table import ImageTable
from classnorm.data.provenance import Provenance
from classnorm.data.row_store import IntArray
from classnorm.encoders.encoder import Encoder
from classnorm.errors import ConfigError, DataError
from classnorm.io.arrays import texts
from classnorm.io.files import digest
from classnorm.preparation.dataset import SplitSettings, with_split
from classnorm.progress import report


@dataclass(frozen=True)
class PartOf:
    """One of several parts of the images, which are extracted independently, for example on several machines."""

    number: int  # from 1
    of: int

    @classmethod
    def parse(cls, text: str) -> PartOf:
        """Parse ``3/16``."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ConfigError(f"`shard` is {text!r}; write 3/16 for the third of sixteen parts (1 to 16)")
        return cls(int(number), int(of))

    def rows(self, n: int) -> IntArray:
        """The rows of this part, of n."""
        if n < self.of:
            raise ConfigError(f"{n} images cannot be divided into {self.of} parts; use fewer in `shard`")
        return np.arange(n * (self.number - 1) // self.of, n * self.number // self.of)

    def document(self, table: ImageTable, encoder: Encoder, split: SplitSettings | None) -> dict[str, Any]:
        """What all parts have in common, and the number. File times and folders may differ between machines.

        Args:
            split: with which `merge` splits the images of all parts, if the table has no split.
        """
        images = digest([table.files, table.labels.tolist(), table.class_names])
        return {
            "number": self.number,
            "of": self.of,
            "images": images,
            "encoder": encoder.record(),
            "split": None if split is None else split.as_dict(),
        }


_COMMON = {"images": "list of images", "encoder": "encoder", "split": "split settings", "of": "number of parts"}


def merge(paths: Sequence[Path], out: Path) -> ImageTable:
    """Join the parts that `extract` wrote to the folder bundle `out`; return its table.

    The parts may be given in any order. They must be all parts of one extraction, each once.
    """
    ordered = _ordered(paths)
    tables = [_table(path) for path in ordered]
    _check_alike(ordered, tables)
    table = _joined(tables)
    split = read_manifest(ordered[0])["part"]["split"]
    if split is not None:
        table = with_split(table, SplitSettings(split["hold_out"], split["seed"], tuple(split.get("unseen", ()))))
    table.check()
    number, done = -1, 0
    with FolderWriter(out) as writer:
        for number, rows in enumerate(chain.from_iterable(map(shards_of, ordered))):
            writer.write(number, rows)
            done += len(rows)
            report(done, len(table))
        writer.finish(table, number + 1)
    return table


def _ordered(paths: Sequence[Path]) -> list[Path]:
    """The folders in the order of their parts."""
    parts: dict[int, Path] = {}
    total = 0
    for path in paths:
        if not is_folder_bundle(path):
            raise DataError(f"{path}: not a folder that classnorm extract has completed; extract that part again")
        part = read_manifest(path).get("part")
        if part is None:
            raise DataError(f"{path}: is a whole dataset, not a part; parts are made by extract with `shard`")
        number, total = int(part["number"]), int(part["of"])
        if number in parts:
            raise DataError(f"{path}: is part {number} of {total}, and so is {parts[number]}; give each part once")
        parts[number] = path
    missing = [number for number in range(1, total + 1) if number not in parts]
    if missing:
        which = f"part{'s' * (len(missing) > 1)} {', '.join(map(str, missing[:5]))}{', …' * (len(missing) > 5)}"
        raise DataError(f"{which} of {total} missing; give the folders of all parts")
    return [parts[number] for number in sorted(parts)]


def _check_alike(paths: Sequence[Path], tables: Sequence[ImageTable]) -> None:
    """Raise if two parts are not of one extraction."""
    first, stores = read_manifest(paths[0])["part"], [read_store(path) for path in paths]
    for path, table, store in zip(paths, tables, stores, strict=True):
        part = read_manifest(path)["part"]
        other = [text for key, text in _COMMON.items() if part.get(key) != first.get(key)]
        if table.class_names != tables[0].class_names:
            other.append("classes")
        if not np.array_equal(*(_descriptors(t) for t in (table, tables[0]))):
            other.append("descriptors")
        if (store.shape[1], store.dtype) != (stores[0].shape[1], stores[0].dtype):
            other.append("precision")
        if other:
            raise DataError(f"{path}: has another {other[0]} than {paths[0]}; extract all parts with the same settings")


def _descriptors(table: ImageTable) -> Any:
    return np.zeros(0) if table.descriptors is None else table.descriptors


def _table(path: Path) -> ImageTable:
    content = read_table(path / TABLE, whole=False)
    rows = [content.get(f"{part}_idx") for part in ("train", "test_seen", "test_unseen")]
    return ImageTable(
        "".join(texts(content["name"])) if "name" in content else path.name,
        tuple(texts(content["image_files"])) if "image_files" in content else (),
        content["labels"],
        tuple(texts(content["class_names"])),
        is_train=content.get("is_train"),
        descriptors=content.get("descriptors"),
        split=None if any(part is None for part in rows) else Split(*rows),  # type: ignore[arg-type]
        provenance=Provenance.from_array(content.get("provenance"), path),
        attribute_names=tuple(texts(content["attribute_names"])) if "attribute_names" in content else None,
    )


def _joined(tables: Sequence[ImageTable]) -> ImageTable:
    """One table of all rows."""
    starts = np.cumsum([0, *map(len, tables)])[:-1]
    splits = [table.split for table in tables]
    split = None
    if None not in splits:
        names = ("train", "test_seen", "test_unseen")
        shifted = [[s.parts[name] + start for s, start in zip(splits, starts, strict=True) if s] for name in names]
        split = Split(*(np.concatenate(rows) for rows in shifted))
    is_train = [table.is_train for table in tables if table.is_train is not None]
    skipped: dict[str, str] = {}
    for table in tables:
        skipped |= table.provenance.skipped
    images = hashlib.sha256("".join(table.provenance.get("images", "") for table in tables).encode()).hexdigest()
    return replace(
        tables[0],
        files=tuple(chain.from_iterable(table.files for table in tables)),
        labels=np.concatenate([table.labels for table in tables]),
        is_train=np.concatenate(is_train) if len(is_train) == len(tables) else None,
        split=split,
        provenance=tables[0].provenance | Provenance.of(images=images, skipped=skipped or None),
    )
