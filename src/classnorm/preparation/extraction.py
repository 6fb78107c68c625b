"""Feature extraction from images, in parts: it can be interrupted and resumed, and memory is bounded.

A part is a fixed range of rows and is computed completely or not at all. Every attempt therefore uses the same batches
and writes an identical file.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from classnorm.data.bundles import FolderWriter, load_bundle, save_bundle, shard_ranges, write_bundle
from classnorm.data.decoding import image_signature, read_images
from classnorm.data.image_table import Images, ImageTable
from classnorm.data.provenance import Provenance
from classnorm.data.row_store import DType, IntArray
from classnorm.encoders.encoder import Encoder
from classnorm.errors import ClusterError, DataError, ModelError
from classnorm.io.arrays import read_npz, texts
from classnorm.io.files import digest, locked, replacing
from classnorm.preparation.dataset import SplitSettings, with_split
from classnorm.preparation.parts import PartOf
from classnorm.progress import report

_CPU_BATCH_SIZE, _BATCH_SIZE = 8, 64  # small batches fit in the CPU cache
_BATCHES = 8  # per part: the most work that is lost by an interruption
_SAME = ("images", "encoder")  # provenance that identifies features
_COMPARED = ("checksum", "provenance", "attribute_names")

ClusterCalls: TypeAlias = Callable[[Callable[[Any, Any], Any], Iterable[tuple[Any, Any]]], Iterator[tuple[int, Any]]]
"""Calls a function for each pair of arguments on a cluster; yields the number of a call and its result, None if its
worker died."""

_Encoded: TypeAlias = tuple[npt.NDArray[np.float32], list[str]]
"""Features of the readable images, and for each image why it cannot be read, or ""."""


@dataclass(frozen=True)
class Extraction:
    """Summary of `extract`."""

    images: int
    new: int  # encoded by this call rather than an earlier one
    skipped: dict[str, str]  # file → why it cannot be read
    missing: tuple[str, ...] = ()  # arrays that training needs and the source does not have
    reused: bool = False  # whether all features are from a bundle that was there


@dataclass(frozen=True)
class Target:
    """The bundle to write: a file, if its name ends in .npz, or else a folder."""

    path: Path
    dtype: DType = "float32"
    """Of the features in a folder."""
    rows_per_shard: int | None = None
    """Of a folder; by default as many as fit into 128 MiB."""
    part: PartOf | None = None
    """Write only this part of the images, to a folder; `merge` joins the parts and splits them."""

    @property
    def is_file(self) -> bool:
        return self.path.suffix == ".npz"


@dataclass(frozen=True, eq=False)
class Encoding:
    """An encoder, and how and where it encodes images."""

    encoder: Encoder
    device: torch.device | str = "cpu"
    """With a cluster, of its workers."""
    batch_size: int | None = None
    """Images per batch; None chooses by device."""
    cluster: ClusterCalls | None = None
    """Encodes the parts instead of this process; its workers need the image files."""
    strict: bool = False
    """Raise on images that cannot be read instead of skipping them."""

    @cached_property
    def images_per_batch(self) -> int:
        is_cpu = torch.device(self.device).type == "cpu"
        return self.batch_size or (_CPU_BATCH_SIZE if is_cpu else _BATCH_SIZE)

    @cached_property
    def settings(self) -> str:
        """Everything but the images that decides the features."""
        return json.dumps([self.encoder.record(), self.images_per_batch])

    def encoded(self, images: Images | Sequence[BinaryIO], parts: Sequence[range]) -> Iterator[_Encoded]:
        """Encode each range of rows in this process."""
        self.encoder.module.to(self.device).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        rows = (row for part in parts for row in part)
        decoded = read_images(images, rows, self.encoder.preprocessing.pixels, ahead=2 * self.images_per_batch)
        for part in parts:
            features: list[npt.NDArray[np.float32]] = []
            reasons: list[str] = []
            while len(reasons) < len(part):
                batch = list(islice(decoded, min(self.images_per_batch, len(part) - len(reasons))))
                reasons += [image if isinstance(image, str) else "" for image in batch]
                features.append(_encode(self.encoder, [x for x in batch if not isinstance(x, str)], self.device))
            yield np.concatenate(features), reasons


def extract(
    table: ImageTable,
    encoding: Encoding,
    target: Target,
    split: SplitSettings | None = None,
    reuse: Sequence[Path] = (),
) -> Extraction:
    """Write the features of all images, and the columns of `table`, to a bundle.

    Finished parts are in `OUT.parts` until the bundle is complete; the same call resumes from them.

    Args:
        split: of the images that can be read, if the table has none.
        reuse: `.npz` bundles from which features of the same images by the same encoder are taken instead.
    """
    table.check()
    if split is not None:
        with_split(table, split)  # raises before hours are spent on features
    document = None
    if target.part is not None:
        document = target.part.document(table, encoding.encoder, split)
        table, split = table.take(target.part.rows(len(table))), None
    job = _Job(table, encoding, target.path, split, _made(table, encoding.encoder))
    with locked(target.path):
        reused = next(filter(None, map(job.reused, reuse)), None)
        if reused is not None:
            return reused
        return job.to_file() if target.is_file else job.to_folder(target, document)


def _made(table: ImageTable, encoder: Encoder) -> Provenance:
    """What features will be made of; the images are looked at before they are read."""
    return Provenance.of(
        features=f"{encoder.name}, {encoder.size} px",
        maps=encoder.maps,
        images=image_signature(table.images, range(len(table))),
        encoder=encoder.record(),
    )


@dataclass(frozen=True, eq=False)
class _Job:
    """A table, how its images are encoded, and the bundle to write."""

    table: ImageTable
    encoding: Encoding
    out: Path
    split: SplitSettings | None
    made: Provenance

    def reused(self, source: Path) -> Extraction | None:
        """Write the bundle with the features of `source` and everything else from the table; None if `source` has
        other features."""
        try:
            content = read_npz(source, ("features", "image_files", "provenance"))
            provenance = Provenance.from_array(content["provenance"], source)
        except DataError:
            return None
        is_same = provenance.only(*_SAME) == self.made.only(*_SAME)
        if not is_same or (self.encoding.strict and provenance.skipped):
            return None
        # The images are the same, but their names need not be: they are relative to a folder or to a CSV file.
        count = len(content["features"])
        named = np.isin(self.table.files, texts(content["image_files"]))
        rows = np.arange(count) if count == len(self.table) else np.flatnonzero(named)
        if len(rows) != count:
            return None
        table = self._finished(rows)
        table = replace(table, provenance=table.provenance | provenance.of_features)
        dataset = table.dataset(content["features"], str(self.out))
        summary = Extraction(count, 0, provenance.skipped, reused=True)
        with suppress(DataError):
            old = load_bundle(self.out)
            if all(getattr(old, part) == getattr(dataset, part) for part in _COMPARED):
                return summary
        save_bundle(dataset, self.out)
        return summary

    def to_file(self) -> Extraction:
        """Encode all images, and write an `.npz` bundle."""
        folder = self.out.with_name(f"{self.out.name}.parts")
        parts = _Parts(self.table, folder, self.encoding)
        new = parts.encode(0, len(self.table))
        readable, skipped = self._readable(parts.reasons, folder)
        readable.check()
        bundle = folder / "whole.npz"  # in the folder, so that an interruption leaves no other files
        write_bundle(bundle, readable, parts.features())
        with replacing(self.out) as temporary:
            bundle.replace(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        return Extraction(len(readable), new, skipped, _missing(readable))

    def to_folder(self, target: Target, part: Mapping[str, Any] | None) -> Extraction:
        """The same for a folder bundle, whose shards are written one after the other."""
        table = self.table
        row_bytes = self.encoding.encoder.d_z * np.dtype(target.dtype).itemsize
        ranges = shard_ranges(len(table), row_bytes, target.rows_per_shard)
        new, reasons = 0, []
        key = digest([self.encoding.settings, self.made["images"], target.dtype, len(ranges[0])])
        with FolderWriter(self.out, key) as writer:
            for number, rows in enumerate(ranges):
                facts = writer.facts(number)
                if facts is None:
                    folder = writer.folder / f"shard-{number:05d}"
                    parts = _Parts(table.take(np.arange(rows.start, rows.stop)), folder, self.encoding)
                    new += parts.encode(rows.start, len(table))
                    facts = {"reasons": parts.reasons.tolist()}
                    writer.write(number, np.concatenate(list(parts.features())).astype(target.dtype), **facts)
                    shutil.rmtree(folder, ignore_errors=True)
                reasons += facts["reasons"]
            readable, skipped = self._readable(np.array(reasons), writer.folder)
            if part is None:
                readable.check()
            writer.finish(readable, len(ranges), part)
        return Extraction(len(readable), new, skipped, _missing(readable))

    def _readable(self, reasons: npt.NDArray[np.str_], folder: Path) -> tuple[ImageTable, dict[str, str]]:
        """The finished table of the images without a reason why they cannot be read, and the reasons of the others."""
        rows, files = np.flatnonzero(reasons == ""), self.table.files
        if not len(rows):
            shutil.rmtree(folder, ignore_errors=True)  # there is nothing to resume
            name = self.table.name
            raise DataError(f"{name}: no image of {len(reasons)} can be read, first {files[0]}: {reasons[0]}")
        skipped = {files[row]: str(reasons[row]) for row in np.flatnonzero(reasons != "")}
        table, keys = self._finished(rows), Provenance.of(skipped=skipped or None)
        provenance = self.made.without(*_SAME) | table.provenance | self.made.only(*_SAME) | keys
        return replace(table, provenance=provenance), skipped

    def _finished(self, rows: IntArray) -> ImageTable:
        """These rows of the table, with a split."""
        table = self.table.take(rows) if len(rows) < len(self.table) else self.table
        return table if self.split is None else with_split(table, self.split)


def _missing(table: ImageTable) -> tuple[str, ...]:
    """Arrays that training needs and the table does not have."""
    missing: tuple[str, ...] = () if table.class_names else ("labels", "class_names")
    missing += ("descriptors",) if table.descriptors is None else ()
    return missing + (("train_idx", "test_seen_idx", "test_unseen_idx") if table.split is None else ())


@dataclass(frozen=True)
class _Part:
    rows: range
    file: Path
    key: str  # identifies the images, the encoder and the batch size

    @property
    def is_finished(self) -> bool:
        """Whether the part was written for the same images and settings."""
        try:
            return str(read_npz(self.file, ("key",))["key"]) == self.key
        except DataError:
            return False


class _Parts:
    """Features of a table in files of a folder; those that are there from an earlier call are not computed again."""

    def __init__(self, table: ImageTable, folder: Path, encoding: Encoding) -> None:
        self.table, self.encoding = table, encoding
        self.parts = []
        for rows in _ranges(len(table), encoding.images_per_batch * _BATCHES):
            key = hashlib.sha256(f"{encoding.settings} {image_signature(table.images, rows)}".encode()).hexdigest()
            self.parts.append(_Part(rows, folder / f"{rows.start:09d}.npz", key))

    def encode(self, before: int, total: int) -> int:
        """Write all unfinished parts and return their number of images; progress counts those `before` the table."""
        pending = [part for part in self.parts if not part.is_finished]
        new = sum(len(part.rows) for part in pending)
        done, started = len(self.table) - new, time.monotonic()
        encoded: Iterable[tuple[_Part, _Encoded]]
        if self.encoding.cluster is None:
            rows = [part.rows for part in pending]
            encoded = zip(pending, self.encoding.encoded(self.table.images, rows), strict=True)
        else:
            encoded = self._encoded_on(self.encoding.cluster, pending)
        for part, (features, reasons) in encoded:
            self._check_readable(part.rows, reasons)
            with replacing(part.file) as temporary:
                np.savez(temporary, features=features, reasons=np.array(reasons), key=np.array(part.key))
            done += len(part.rows)
            report(before + done, total, _speed(new - len(self.table) + done, started))
        return new

    @cached_property
    def reasons(self) -> npt.NDArray[np.str_]:
        """For each image of the finished parts why it cannot be read, or ""."""
        reasons = np.concatenate([read_npz(part.file, ("reasons",))["reasons"] for part in self.parts])
        self._check_readable(range(len(self.table)), reasons)
        return reasons

    def features(self) -> Iterator[npt.NDArray[np.float32]]:
        """Those of the readable images, part by part."""
        return (read_npz(part.file, ("features",))["features"] for part in self.parts)

    def _check_readable(self, rows: range, reasons: Iterable[str]) -> None:
        for row, reason in zip(rows, reasons, strict=True):
            if reason and self.encoding.strict:
                raise DataError(
                    f"{self.table.files[row]}: {reason}; correct or remove that image, or leave out `strict` to skip it"
                )

    def _encoded_on(self, cluster: ClusterCalls, parts: Sequence[_Part]) -> Iterator[tuple[_Part, _Encoded]]:
        """Each part and its features, in the order in which workers finish."""
        encoding = replace(self.encoding, cluster=None)
        images = self.table.images

        def piece(part: _Part) -> _Piece:
            chosen = images[part.rows.start : part.rows.stop]
            chosen = chosen if isinstance(chosen, np.ndarray) else [path.absolute() for path in chosen]
            return _Piece(chosen, _sizes(chosen))

        for number, result in cluster(_encode_piece, ((encoding, piece(part)) for part in parts)):
            if result is None:
                raise ClusterError("a worker died while it encoded images; use a smaller `batch_size` or `jobs`")
            yield parts[number], result


@dataclass(frozen=True)
class _Piece:
    """The images of a part, for a worker of a cluster."""

    images: Images
    sizes: list[int]  # of the files


def _encode_piece(encoding: Encoding, piece: _Piece) -> _Encoded:
    """Encode the images of a part in a worker. Raises if its files are others than those of the caller."""
    sizes = _sizes(piece.images)
    if sizes != piece.sizes:
        first = next(path for path, *pair in zip(piece.images, sizes, piece.sizes, strict=True) if len(set(pair)) > 1)
        raise DataError(
            f"{first}: missing or different on the worker {socket.gethostname()}; "
            "all machines of the cluster must have the images at the same path"
        )
    if torch.device(encoding.device).type == "cpu":
        torch.set_num_threads(1)
    return next(encoding.encoded(piece.images, [range(len(piece.images))]))


def _sizes(images: Images) -> list[int]:
    """Size of each file, −1 without one; nothing for pixels."""
    return [path.stat().st_size if path.is_file() else -1 for path in images if isinstance(path, Path)]


def encode_images(
    files: Sequence[Path] | Sequence[BinaryIO], encoder: Encoder, device: torch.device | str = "cpu"
) -> tuple[npt.NDArray[np.float32], list[str]]:
    """Encode images: features of the readable ones, and for each image why it cannot be read, or ""."""
    encoding, started = Encoding(encoder, device), time.monotonic()
    features: list[npt.NDArray[np.float32]] = [np.zeros((0, encoder.d_z), dtype=np.float32)]
    reasons: list[str] = []
    for batch, batch_reasons in encoding.encoded(files, _ranges(len(files), encoding.images_per_batch)):
        features.append(batch)
        reasons += batch_reasons
        report(len(reasons), len(files), _speed(len(reasons), started))
    return np.concatenate(features), reasons


def _speed(images: int, started: float) -> str:
    return f"{images / max(time.monotonic() - started, 1e-6):.1f} images/s"


def _ranges(n: int, length: int) -> list[range]:
    return [range(start, min(start + length, n)) for start in range(0, n, length)]


def _encode(
    encoder: Encoder, images: list[npt.NDArray[np.uint8]], device: torch.device | str
) -> npt.NDArray[np.float32]:
    if not images:
        return np.zeros((0, encoder.d_z), dtype=np.float32)
    with torch.inference_mode():
        pixels = torch.from_numpy(np.stack(images)).to(device)
        features: npt.NDArray[np.float32] = encoder.encode(encoder.preprocessing.normalize(pixels)).cpu().numpy()
    if not np.isfinite(features).all():
        raise ModelError(f"encoder {encoder.name} returns NaN or infinity; its weights ({encoder.weights}) are damaged")
    return features
