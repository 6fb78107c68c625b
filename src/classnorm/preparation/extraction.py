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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from classnorm.cluster import Cluster
from classnorm.data.bundles import FolderWriter, shard_ranges, write_bundle
from classnorm.data.decoding import image_signature, read_images
from classnorm.data.image_table import Images, ImageTable
from classnorm.data.provenance import Provenance
from classnorm.data.row_store import DType
from classnorm.encoders.encoder import Encoder
from classnorm.errors import ClusterError, DataError, ModelError
from classnorm.io.arrays import read_npz
from classnorm.io.files import digest, replacing
from classnorm.preparation.parts import PartOf, check_table
from classnorm.progress import OnProgress, Progress

_CPU_BATCH_SIZE, _BATCH_SIZE = 8, 64  # small batches fit in the CPU cache
_BATCHES = 8  # per part: the most work that is lost by an interruption


@dataclass(frozen=True)
class Extraction:
    """Summary of `extract_features`."""

    images: int
    new: int  # encoded by this call rather than an earlier one
    skipped: dict[str, str]  # file → why it cannot be read
    missing: tuple[str, ...]  # arrays that training needs and the source does not have


@dataclass(frozen=True)
class _Part:
    rows: range
    file: Path
    key: str  # identifies the images, the encoder and the batch size


_Encoded: TypeAlias = tuple[npt.NDArray[np.float32], list[str]]
"""Features of the readable images, and for each image why it cannot be read, or ""."""


def extract_features(
    table: ImageTable,
    encoder: Encoder,
    out: Path,
    *,
    batch_size: int | None = None,
    device: torch.device | str = "cpu",
    cluster: Cluster | None = None,
    strict: bool = False,
    finish: Callable[[ImageTable], ImageTable] = lambda table: table,
    progress: OnProgress | None = None,
) -> Extraction:
    """Write the features of all images, and the columns of `table`, to the bundle `out`.

    Finished parts are in `OUT.parts` until the bundle is complete; the same call resumes from them.

    Args:
        batch_size: images per batch; None chooses by device.
        cluster: encode the parts there instead; `device` is then a device of its workers, which need the image files.
        strict: raise on images that cannot be read instead of skipping them.
        finish: called with the table of readable images; returns the table to write, for example with a split.
    """
    check_table(table)
    folder = out.with_name(f"{out.name}.parts")
    device = torch.device(device)
    batch_size = batch_size or _batch_size(device)
    record = encoder.record()
    signature = image_signature(table.images, range(len(table)))  # before reading them
    parts = _parts(table, folder, json.dumps([record, batch_size]), batch_size)
    new = _encode_parts(table, parts, encoder, batch_size, device, strict, progress, cluster)
    reasons = _reasons(table, parts, strict)
    if not (reasons == "").any():
        shutil.rmtree(folder, ignore_errors=True)  # there is nothing to resume
    readable, skipped = _readable(table, reasons, encoder, signature, finish)
    check_table(readable)
    bundle = folder / "whole.npz"  # in the folder, so that an interruption leaves no other files
    blocks = (read_npz(part.file, ("features",))["features"] for part in parts)
    write_bundle(bundle, readable, blocks)
    with replacing(out) as temporary:
        bundle.replace(temporary)
    shutil.rmtree(folder, ignore_errors=True)
    return Extraction(len(readable), new, skipped, _missing(readable))


def extract_folder(
    table: ImageTable,
    encoder: Encoder,
    out: Path,
    *,
    part: PartOf | None = None,
    dtype: DType = "float32",
    rows_per_shard: int | None = None,
    batch_size: int | None = None,
    device: torch.device | str = "cpu",
    cluster: Cluster | None = None,
    strict: bool = False,
    finish: Callable[[ImageTable], ImageTable] = lambda table: table,
    progress: OnProgress | None = None,
) -> Extraction:
    """Like `extract_features`, to a folder bundle, whose shards are written one after the other.

    Args:
        part: encode only this part of the images; `merge` joins the parts. `finish` is not called then.
        dtype: of the features in the bundle.
        rows_per_shard: of the bundle; by default as many as fit into 128 MiB.
    """
    check_table(table)
    device = torch.device(device)
    batch_size = batch_size or _batch_size(device)
    document = None
    if part is not None:
        document = part.document(table, encoder)
        table, finish = table.take(part.rows(len(table))), lambda table: table
    signature = image_signature(table.images, range(len(table)))  # before reading them
    settings = json.dumps([encoder.record(), batch_size])
    ranges = shard_ranges(len(table), encoder.d_z * np.dtype(dtype).itemsize, rows_per_shard)
    new, reasons = 0, []
    with FolderWriter(out, digest([settings, signature, dtype, len(ranges[0])])) as writer:
        for number, rows in enumerate(ranges):
            facts = writer.facts(number)
            if facts is None:
                shard = table.take(np.arange(rows.start, rows.stop))
                parts = _parts(shard, writer.folder / f"shard-{number:05d}", settings, batch_size)
                report = _within(progress, rows.start, len(table))
                new += _encode_parts(shard, parts, encoder, batch_size, device, strict, report, cluster)
                facts = {"reasons": _reasons(shard, parts, strict).tolist()}
                features = [read_npz(part.file, ("features",))["features"] for part in parts]
                writer.write(number, np.concatenate(features).astype(dtype), **facts)
                shutil.rmtree(writer.folder / f"shard-{number:05d}", ignore_errors=True)
            reasons += facts["reasons"]
        if not any(reason == "" for reason in reasons):
            shutil.rmtree(writer.folder, ignore_errors=True)  # there is nothing to resume
        readable, skipped = _readable(table, np.array(reasons), encoder, signature, finish)
        if part is None:
            check_table(readable)
        writer.finish(readable, len(ranges), document)
    return Extraction(len(readable), new, skipped, _missing(readable))


def _within(progress: OnProgress | None, done: int, total: int) -> OnProgress | None:
    """Report the progress of a shard as progress of all."""
    return progress and (lambda step: progress(Progress(done + step.done, total, step.note)))


def _reasons(table: ImageTable, parts: Sequence[_Part], strict: bool) -> npt.NDArray[np.str_]:
    """For each image of the finished parts why it cannot be read, or ""."""
    reasons = np.concatenate([read_npz(part.file, ("reasons",))["reasons"] for part in parts])
    if strict:
        _check_readable(table, range(len(table)), reasons)
    return reasons


def _readable(
    table: ImageTable,
    reasons: npt.NDArray[np.str_],
    encoder: Encoder,
    signature: str,
    finish: Callable[[ImageTable], ImageTable],
) -> tuple[ImageTable, dict[str, str]]:
    """The finished table of the readable images, and why the others cannot be read."""
    rows = np.flatnonzero(reasons == "")
    if not len(rows):
        raise DataError(f"{table.name}: no image of {len(table)} can be read, first {table.files[0]}: {reasons[0]}")
    skipped = {table.files[row]: str(reasons[row]) for row in np.flatnonzero(reasons != "")}
    readable = finish(table.take(rows) if len(rows) < len(table) else table)
    about = Provenance.of(features=f"{encoder.name}, {encoder.size} px", maps=encoder.maps)
    made = Provenance.of(images=signature, encoder=encoder.record(), skipped=skipped or None)
    return replace(readable, provenance=about | readable.provenance | made), skipped


def _missing(table: ImageTable) -> tuple[str, ...]:
    """Arrays that training needs and the table does not have."""
    missing: tuple[str, ...] = () if table.class_names else ("labels", "class_names")
    missing += ("descriptors",) if table.descriptors is None else ()
    return missing + (("train_idx", "test_seen_idx", "test_unseen_idx") if table.split is None else ())


def _encode_parts(
    table: ImageTable,
    parts: list[_Part],
    encoder: Encoder,
    batch_size: int,
    device: torch.device,
    strict: bool,
    progress: OnProgress | None,
    cluster: Cluster | None,
) -> int:
    """Write all unfinished parts and return their number of images."""
    pending = [part for part in parts if not _is_finished(part)]
    new = sum(len(part.rows) for part in pending)
    done, started = len(table) - new, time.monotonic()
    encoded: Iterable[tuple[_Part, _Encoded]]
    if cluster is None:
        rows = [part.rows for part in pending]
        encoded = zip(pending, _encoded(table.images, rows, encoder, batch_size, device), strict=True)
    else:
        encoded = _encoded_on(cluster, table.images, pending, encoder, batch_size, device)
    for part, (features, reasons) in encoded:
        if strict:
            _check_readable(table, part.rows, reasons)
        with replacing(part.file) as temporary:
            np.savez(temporary, features=features, reasons=np.array(reasons), key=np.array(part.key))
        done += len(part.rows)
        if progress:
            progress(Progress(done, len(table), _speed(new - len(table) + done, started)))
    return new


@dataclass(frozen=True)
class _Piece:
    """The images of a part, for a worker of a cluster."""

    images: Images
    sizes: list[int]  # of the files
    batch_size: int
    device: torch.device


def _encoded_on(
    cluster: Cluster, images: Images, parts: Sequence[_Part], encoder: Encoder, batch_size: int, device: torch.device
) -> Iterator[tuple[_Part, _Encoded]]:
    """Each part and what `_encoded` makes of it, in the order in which workers finish."""

    def piece(part: _Part) -> _Piece:
        chosen = images[part.rows.start : part.rows.stop]
        chosen = chosen if isinstance(chosen, np.ndarray) else [path.absolute() for path in chosen]
        return _Piece(chosen, _sizes(chosen), batch_size, device)

    for number, result in cluster.results(_encode_piece, ((encoder, piece(part)) for part in parts)):
        if result is None:
            raise ClusterError("a worker died while it encoded images; use a smaller `batch_size` or `jobs`")
        yield parts[number], result


def _encode_piece(encoder: Encoder, piece: _Piece) -> _Encoded:
    """Encode the images of a part in a worker. Raises if its files are others than those of the caller."""
    sizes = _sizes(piece.images)
    if sizes != piece.sizes:
        first = next(path for path, *pair in zip(piece.images, sizes, piece.sizes, strict=True) if len(set(pair)) > 1)
        raise DataError(
            f"{first}: missing or different on the worker {socket.gethostname()}; "
            "all machines of the cluster must have the images at the same path"
        )
    if piece.device.type == "cpu":
        torch.set_num_threads(1)
    return next(_encoded(piece.images, [range(len(piece.images))], encoder, piece.batch_size, piece.device))


def _sizes(images: Images) -> list[int]:
    """Size of each file, −1 without one; nothing for pixels."""
    return [path.stat().st_size if path.is_file() else -1 for path in images if isinstance(path, Path)]


def encode_images(
    files: Sequence[Path] | Sequence[BinaryIO],
    encoder: Encoder,
    *,
    device: torch.device | str = "cpu",
    progress: OnProgress | None = None,
) -> tuple[npt.NDArray[np.float32], list[str]]:
    """Encode images: features of the readable ones, and for each image why it cannot be read, or ""."""
    device = torch.device(device)
    batch_size = _batch_size(device)
    started = time.monotonic()
    features: list[npt.NDArray[np.float32]] = [np.zeros((0, encoder.d_z), dtype=np.float32)]
    reasons: list[str] = []
    for batch, batch_reasons in _encoded(files, _ranges(len(files), batch_size), encoder, batch_size, device):
        features.append(batch)
        reasons += batch_reasons
        if progress:
            progress(Progress(len(reasons), len(files), _speed(len(reasons), started)))
    return np.concatenate(features), reasons


def _speed(images: int, started: float) -> str:
    return f"{images / max(time.monotonic() - started, 1e-6):.1f} images/s"


def _batch_size(device: torch.device) -> int:
    return _CPU_BATCH_SIZE if device.type == "cpu" else _BATCH_SIZE


def _parts(table: ImageTable, folder: Path, settings: str, batch_size: int) -> list[_Part]:
    parts = []
    for rows in _ranges(len(table), batch_size * _BATCHES):
        key = hashlib.sha256(f"{settings} {image_signature(table.images, rows)}".encode()).hexdigest()
        parts.append(_Part(rows, folder / f"{rows.start:09d}.npz", key))
    return parts


def _ranges(n: int, length: int) -> list[range]:
    return [range(start, min(start + length, n)) for start in range(0, n, length)]


def _is_finished(part: _Part) -> bool:
    """Whether the part was written for the same images and settings."""
    try:
        return str(read_npz(part.file, ("key",))["key"]) == part.key
    except DataError:
        return False


def _encoded(
    images: Images | Sequence[BinaryIO],
    parts: Sequence[range],
    encoder: Encoder,
    batch_size: int,
    device: torch.device,
) -> Iterator[_Encoded]:
    """For each range of rows: features of the readable images, and for each image why it cannot be read, or ""."""
    encoder.module.to(device).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows = (row for part in parts for row in part)
    decoded = read_images(images, rows, encoder.preprocessing.pixels, ahead=2 * batch_size)
    for part in parts:
        features: list[npt.NDArray[np.float32]] = []
        reasons: list[str] = []
        while len(reasons) < len(part):
            batch = list(islice(decoded, min(batch_size, len(part) - len(reasons))))
            reasons += [image if isinstance(image, str) else "" for image in batch]
            features.append(_encode(encoder, [image for image in batch if not isinstance(image, str)], device))
        yield np.concatenate(features), reasons


def _check_readable(table: ImageTable, rows: range, reasons: Iterable[str]) -> None:
    for row, reason in zip(rows, reasons, strict=True):
        if reason:
            raise DataError(
                f"{table.files[row]}: {reason}; correct or remove that image, or leave out `strict` to skip it"
            )


def _encode(encoder: Encoder, images: list[npt.NDArray[np.uint8]], device: torch.device) -> npt.NDArray[np.float32]:
    if not images:
        return np.zeros((0, encoder.d_z), dtype=np.float32)
    with torch.inference_mode():
        pixels = torch.from_numpy(np.stack(images)).to(device)
        features: npt.NDArray[np.float32] = encoder.encode(encoder.preprocessing.normalize(pixels)).cpu().numpy()
    if not np.isfinite(features).all():
        raise ModelError(f"encoder {encoder.name} returns NaN or infinity; its weights ({encoder.weights}) are damaged")
    return features
