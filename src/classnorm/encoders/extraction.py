"""Pictures → features in a bundle, part by part: what is done survives a kill, and memory stays bounded.

A part is a fixed run of rows. It is recomputed from its first batch on or not at all, so that every picture shares its
batch with the same others in each attempt and the file comes out identical.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from classnorm.data.bundle import read_npz, write_bundle
from classnorm.data.dataset import check_descriptors
from classnorm.data.image_table import ImageTable
from classnorm.data.images import image_signature, read_images
from classnorm.encoders.encoder import Encoder
from classnorm.errors import DataError, ModelError
from classnorm.files import replacing
from classnorm.progress import OnProgress, Progress

__all__ = ["Extraction", "encode_images", "extract_features"]

_CPU_BATCH_SIZE, _BATCH_SIZE = 8, 64  # small ones stay in a processor's cache
_BATCHES = 8  # in a part: what a kill may cost


@dataclass(frozen=True)
class Extraction:
    """What was written."""

    images: int
    new: int  # read by this call; the others were in parts of an earlier one
    skipped: dict[str, str]  # file → why it could not be read
    missing: tuple[str, ...]  # what training needs and the source does not tell


@dataclass(frozen=True)
class _Part:
    rows: range
    file: Path
    key: str  # of the pictures, the encoder and the batches


def extract_features(
    table: ImageTable,
    encoder: Encoder,
    out: Path,
    *,
    batch_size: int | None = None,
    device: torch.device | str = "cpu",
    strict: bool = False,
    finish: Callable[[ImageTable], ImageTable] = lambda kept: kept,
    progress: OnProgress | None = None,
) -> Extraction:
    """Write the features of all pictures, and what `table` tells of them, to the bundle `out`.

    Finished parts lie in `OUT.parts` until the bundle is whole; the same call goes on from them.

    Args:
        batch_size: pictures encoded together; None is what suits the device.
        strict: raise at the first picture that cannot be read, instead of leaving it out.
        finish: given the table of the pictures that can be read, returns what to write; it may add a split.

    Raises:
        DataError: no picture can be read, or, if `strict`, one cannot; or the split does not fit the pictures.
    """
    _check(table)
    folder = out.with_name(f"{out.name}.parts")
    device = torch.device(device)
    batch_size = batch_size or _batch_size(device)
    record = encoder.record()
    signature = image_signature(table.images, range(len(table)))  # of the pictures as they are before they are read
    parts = _parts(table, folder, json.dumps([record, batch_size]), batch_size)
    new = _encode_parts(table, parts, encoder, batch_size, device, strict, progress)
    skipped = _skipped(table, parts, strict)
    readable_rows = np.array([row for row in range(len(table)) if row not in skipped], dtype=np.int64)
    if not len(readable_rows):
        shutil.rmtree(folder, ignore_errors=True)  # there is nothing to go on from
        raise DataError(f"{table.name}: none of {len(table)} images can be read, first {table.files[0]}: {skipped[0]}")
    left_out = {table.files[row]: why for row, why in skipped.items()}
    kept = finish(table.take(readable_rows))
    _check(kept)
    provenance = {
        "features": f"{encoder.name}, {encoder.size} px",
        **kept.provenance,
        "images": signature,
        "encoder": json.dumps(record),
    }
    if left_out:
        provenance["skipped"] = json.dumps(left_out)
    whole = folder / "whole.npz"  # there, so that a kill leaves nothing but the folder
    blocks = (read_npz(part.file, ("features",))["features"] for part in parts)
    write_bundle(whole, replace(kept, provenance=provenance), blocks)
    with replacing(out) as temporary:
        whole.replace(temporary)
    shutil.rmtree(folder, ignore_errors=True)
    return Extraction(len(kept), new, left_out, _missing(kept))


def _encode_parts(
    table: ImageTable,
    parts: list[_Part],
    encoder: Encoder,
    batch_size: int,
    device: torch.device,
    strict: bool,
    progress: OnProgress | None,
) -> int:
    """Write every part that is not finished, and return how many pictures these have."""
    pending = [part for part in parts if not _is_finished(part)]
    new = sum(len(part.rows) for part in pending)
    before = done = len(table) - new
    _ready(encoder, device)
    started = time.monotonic()
    for part, features, reasons in _encoded(table, pending, encoder, batch_size, device, strict):
        with replacing(part.file) as temporary:
            np.savez(temporary, features=features, reasons=np.array(reasons), key=np.array(part.key))
        done += len(part.rows)
        if progress:
            progress(Progress(done, len(table), _speed(done - before, started)))
    return new


def encode_images(
    files: Sequence[Path],
    encoder: Encoder,
    *,
    device: torch.device | str = "cpu",
    progress: OnProgress | None = None,
) -> tuple[npt.NDArray[np.float32], list[str]]:
    """The features of the pictures that can be read, and for each picture the reason why not, or ""."""
    device = torch.device(device)
    batch_size = _batch_size(device)
    _ready(encoder, device)
    started = time.monotonic()
    pictures = read_images(files, range(len(files)), encoder.preprocessing.pixels, ahead=2 * batch_size)
    features: list[npt.NDArray[np.float32]] = [np.zeros((0, encoder.d_z), dtype=np.float32)]
    reasons: list[str] = []
    while batch := list(islice(pictures, batch_size)):
        reasons += [picture if isinstance(picture, str) else "" for picture in batch]
        features.append(_encode(encoder, [picture for picture in batch if not isinstance(picture, str)], device))
        if progress:
            progress(Progress(len(reasons), len(files), _speed(len(reasons), started)))
    return np.concatenate(features), reasons


def _speed(images: int, started: float) -> str:
    return f"{images / max(time.monotonic() - started, 1e-6):.1f} images/s"


def _batch_size(device: torch.device) -> int:
    return _CPU_BATCH_SIZE if device.type == "cpu" else _BATCH_SIZE


def _ready(encoder: Encoder, device: torch.device) -> None:
    encoder.module.to(device).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _check(table: ImageTable) -> None:
    """What is known must be a valid dataset, and be it before hours are spent on its features."""
    if table.descriptors is not None and table.split is None:
        check_descriptors(table.descriptors, table.class_names, table.name)
    if table.descriptors is None or table.split is None:
        return
    table.dataset(np.zeros((len(table), 1), dtype=np.float32))


def _missing(table: ImageTable) -> tuple[str, ...]:
    split = () if table.split is not None else ("train_idx", "test_seen_idx", "test_unseen_idx")
    return split if table.descriptors is not None else ("descriptors", *split)


def _parts(table: ImageTable, folder: Path, settings: str, batch_size: int) -> list[_Part]:
    length = batch_size * _BATCHES
    parts = []
    for start in range(0, len(table), length):
        rows = range(start, min(start + length, len(table)))
        key = hashlib.sha256(f"{settings} {image_signature(table.images, rows)}".encode()).hexdigest()
        parts.append(_Part(rows, folder / f"{start:09d}.npz", key))
    return parts


def _is_finished(part: _Part) -> bool:
    """Whether the part was written for these very pictures and settings."""
    try:
        return str(read_npz(part.file, ("key",))["key"]) == part.key
    except DataError:
        return False


def _encoded(
    table: ImageTable,
    parts: list[_Part],
    encoder: Encoder,
    batch_size: int,
    device: torch.device,
    strict: bool,
) -> Iterator[tuple[_Part, npt.NDArray[np.float32], list[str]]]:
    """For each part the features of its readable pictures, and the reason, or "", for each picture."""
    rows = (row for part in parts for row in part.rows)
    pictures = read_images(table.images, rows, encoder.preprocessing.pixels, ahead=2 * batch_size)
    for part in parts:
        features: list[npt.NDArray[np.float32]] = [np.zeros((0, encoder.d_z), dtype=np.float32)]
        reasons: list[str] = []
        while len(reasons) < len(part.rows):
            batch = list(islice(pictures, min(batch_size, len(part.rows) - len(reasons))))
            for picture in batch:
                if strict and isinstance(picture, str):
                    raise _unreadable(table.files[part.rows[len(reasons)]], picture)
                reasons.append(picture if isinstance(picture, str) else "")
            features.append(_encode(encoder, [picture for picture in batch if not isinstance(picture, str)], device))
        yield part, np.concatenate(features), reasons


def _unreadable(file: str, reason: str) -> DataError:
    return DataError(f"{file}: {reason}; repair or remove that image, or leave out `strict` to skip it")


def _encode(encoder: Encoder, pictures: list[npt.NDArray[np.uint8]], device: torch.device) -> npt.NDArray[np.float32]:
    if not pictures:
        return np.zeros((0, encoder.d_z), dtype=np.float32)
    with torch.inference_mode():
        pixels = torch.from_numpy(np.stack(pictures)).to(device)
        features: npt.NDArray[np.float32] = encoder.module(encoder.preprocessing.normalize(pixels)).cpu().numpy()
    if not np.isfinite(features).all():
        raise ModelError(f"encoder {encoder.name} gives NaN or infinity; its weights ({encoder.weights}) are damaged")
    return features


def _skipped(table: ImageTable, parts: list[_Part], strict: bool) -> dict[int, str]:
    """Row → why its picture could not be read."""
    skipped = {}
    for part in parts:
        for row, reason in zip(part.rows, read_npz(part.file, ("reasons",))["reasons"].tolist(), strict=True):
            if reason and strict:
                raise _unreadable(table.files[row], reason)
            if reason:
                skipped[row] = reason
    return skipped
