"""Public datasets from their publishers: downloaded with pooch, compared with a checksum, unpacked."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from classnorm.data.downloading import download, shown_host
from classnorm.data.unpacking import unpack
from classnorm.errors import DataError, OutputError, unknown_name
from classnorm.io.documents import Count, read_json
from classnorm.io.files import cache_folder, locked, make_folder, write_json
from classnorm.progress import Announce, OnProgress

_MARKER = "fetched.json"
_GB = 1 << 30


@dataclass(frozen=True)
class Source:
    """A public dataset."""

    name: str
    archive: str
    urls: tuple[str, ...]
    content: tuple[str, ...]
    """Files that the archive must contain."""
    checksum: str | None = None
    """As published, `md5:…` or `sha256:…`; if None, that of the first download holds from then on."""
    most: int = 4 * _GB
    """Bytes that the archive may have."""
    most_unpacked: int = 16 * _GB
    terms: str = ""
    """Conditions of use in a few words."""


_GBU = ("CUB", "SUN", "AWA1", "AWA2", "APY")

SOURCES = {
    source.name: source
    for source in (
        Source(
            "gbu",
            "xlsa17.zip",
            ("https://datasets.d2.mpi-inf.mpg.de/xian/xlsa17.zip",),
            tuple(f"xlsa17/data/{name}/{file}.mat" for name in _GBU for file in ("att_splits", "res101")),
            terms="ResNet-101 features and splits by Xian et al.; cite their paper and those of the datasets",
        ),
        Source(
            "cub",
            "CUB_200_2011.tgz",
            ("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",),
            ("CUB_200_2011/images.txt", "CUB_200_2011/classes.txt", "CUB_200_2011/image_class_labels.txt"),
            checksum="md5:97eceeb196236b17998738112f37df78",
            terms="images for non-commercial research and education; cite Wah et al., 2011",
        ),
    )
}


class _Record(TypedDict):
    """The checksum of a first download."""

    sha256: str
    url: str


class _Marker(TypedDict):
    name: str
    url: str
    sha256: str
    bytes: Count
    files: Count
    target: NotRequired[str]


@dataclass(frozen=True)
class Fetched:
    """A dataset on disk."""

    name: str
    url: str
    sha256: str
    bytes: int
    """Of all files, unpacked."""
    files: int


def fetch(
    name: str, folder: Path, mirrors: Sequence[str] = (), announce: Announce = lambda stage: None
) -> tuple[Path, Fetched]:
    """Download and unpack a dataset to `folder / name`, unless it is there; an interrupted download is continued.

    Args:
        mirrors: addresses of the same archive, which are tried first.

    Returns:
        The folder, and where its content is from.
    """
    if name not in SOURCES:
        raise unknown_name("dataset to fetch", name, SOURCES)
    source, target = SOURCES[name], folder / name
    with locked(target):
        if (target / _MARKER).is_file():
            shape = read_json(target / _MARKER, _Marker, "delete the folder to fetch it again")
            return target, Fetched(**{key: shape[key] for key in Fetched.__dataclass_fields__})
        if target.exists():
            raise DataError(f"{target}: exists, but was not written by `data fetch`; move it away or set `out`")
        work = make_folder(folder / f".{name}.fetch")
        try:
            fetched = _fetch(source, work, mirrors, announce)
            (work / "unpacked").replace(target)
        except OSError as error:
            raise OutputError(
                f"cannot write {folder}: {error.strerror or error}; free some space, or set `out`"
            ) from error
        finally:
            if not any(file.is_file() for file in (work / "part", work / source.archive)) or target.exists():
                shutil.rmtree(work, ignore_errors=True)  # nothing to continue from
    return target, fetched


def _fetch(source: Source, work: Path, mirrors: Sequence[str], announce: Announce) -> Fetched:
    """Download, check and unpack to `work / "unpacked"`."""
    import pooch

    url = _first_that_works(source, work, mirrors, announce(f"download {source.archive}"))
    archive, unpacked = work / source.archive, work / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        files, size = unpack(
            archive, unpacked, most=source.most_unpacked, progress=announce(f"unpack {source.archive}")
        )
        missing = [file for file in source.content if not (unpacked / file).is_file()]
        if missing:
            raise DataError(
                f"{source.archive}: {missing[0]} is missing; {shown_host(url)} has another file of this name"
            )
    except DataError:
        archive.unlink(missing_ok=True)
        raise
    fetched = Fetched(source.name, url, pooch.file_hash(str(archive)), size, files)
    if source.checksum is None:
        write_json(_record_file(source), {"sha256": fetched.sha256, "url": url})
    write_json(unpacked / _MARKER, asdict(fetched))
    return fetched


def _first_that_works(source: Source, work: Path, mirrors: Sequence[str], progress: OnProgress | None) -> str:
    """Download the archive to `work` from the first address that has it."""
    problems = []
    for url in (*mirrors, *source.urls):
        try:
            _retrieve(source, url, work, progress)
            return url
        except DataError as problem:
            problems.append(str(problem))
    remedy = "set `mirror` to another address of it" if source.urls else "try another `mirror`"
    if source.urls:
        remedy += f", or unpack {source.urls[0]} by other means"
    raise DataError(f"cannot fetch {source.archive}: {'; '.join(problems)}; {remedy}")


def _retrieve(source: Source, url: str, work: Path, progress: OnProgress | None) -> None:
    """Download the archive and compare its checksum; a part that was continued and does not fit is fetched anew."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    known, part = _known_checksum(source), work / "part"
    for continued in (part.is_file(), False):

        def receive(url: str, output: str, _: object) -> None:
            download(url, part, most=source.most, anyway=known is not None, progress=progress)
            part.replace(output)

        try:
            pooch.retrieve(url, known, source.archive, work, downloader=receive)
            return
        except ValueError as error:  # pooch has deleted it
            if not continued:
                raise DataError(_mismatch(source, url)) from error


def _known_checksum(source: Source) -> str | None:
    record = _record_file(source)
    if source.checksum is not None or not record.is_file():
        return source.checksum
    return f"sha256:{read_json(record, _Record, 'delete it')['sha256']}"


def _record_file(source: Source) -> Path:
    return cache_folder() / "fetched" / f"{source.name}.json"


def _mismatch(source: Source, url: str) -> str:
    if source.checksum is not None:
        return f"{shown_host(url)}: sends another file than the published one (checksum)"
    return (
        f"{shown_host(url)}: sends another file than at the first time (checksum); if it was replaced on purpose, "
        f"delete {_record_file(source)}"
    )
