"""Public datasets from their publishers: downloaded with pooch, compared with a checksum, unpacked."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast
from urllib.parse import urlsplit

from classnorm.errors import ClassNormError, DataError, OutputError, unknown_name
from classnorm.io.documents import Count, read_json
from classnorm.io.files import cache_folder, locked, make_folder, write_json
from classnorm.io.unpacking import unpack
from classnorm.progress import report, stage

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


def fetch(name: str, folder: Path, mirrors: Sequence[str] = ()) -> tuple[Path, Fetched]:
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
            fetched = _fetch(source, work, mirrors)
            (work / "unpacked").replace(target)
        except OSError as error:
            raise OutputError(
                f"cannot write {folder}: {error.strerror or error}; free some space, or set `out`"
            ) from error
        finally:
            if not any(file.is_file() for file in (work / "part", work / source.archive)) or target.exists():
                shutil.rmtree(work, ignore_errors=True)  # nothing to continue from
    return target, fetched


def _fetch(source: Source, work: Path, mirrors: Sequence[str]) -> Fetched:
    """Download, check and unpack to `work / "unpacked"`."""
    import pooch

    with stage(f"download {source.archive}"):
        url = _first_that_works(source, work, mirrors)
    archive, unpacked = work / source.archive, work / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        with stage(f"unpack {source.archive}"):
            files, size = unpack(archive, unpacked, most=source.most_unpacked)
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


def _first_that_works(source: Source, work: Path, mirrors: Sequence[str]) -> str:
    """Download the archive to `work` from the first address that has it."""
    problems = []
    for url in (*mirrors, *source.urls):
        try:
            _retrieve(source, url, work)
            return url
        except DataError as problem:
            problems.append(str(problem))
    remedy = "set `mirror` to another address of it" if source.urls else "try another `mirror`"
    if source.urls:
        remedy += f", or unpack {source.urls[0]} by other means"
    raise DataError(f"cannot fetch {source.archive}: {'; '.join(problems)}; {remedy}")


def _retrieve(source: Source, url: str, work: Path) -> None:
    """Download the archive and compare its checksum; a part that was continued and does not fit is fetched anew."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    known, part = _known_checksum(source), work / "part"
    for continued in (part.is_file(), False):

        def receive(url: str, output: str, _: object) -> None:
            download(url, part, most=source.most, anyway=known is not None)
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


# ---- A download that survives bad connections: it continues where it stopped, also in another process ---------------

_CONNECT, _STALL = 10.0, 30.0  # seconds to wait for a connection, and for the next bytes
_TRIES = 3  # in a row that bring no byte
_PAUSE = 1.0  # seconds before the second try; the next pauses are longer
_BLOCK = 1 << 18
_MB = 1 << 20


class _State(TypedDict):
    """What is known about a part of a file."""

    url: str
    validator: NotRequired[str]
    """ETag or date by which the server tells versions of the file apart."""


class _UnstableError(Exception):
    """A connection that broke, stalled or was refused: worth another try."""


def shown_host(url: str) -> str:
    """The host of an address, for messages.

    >>> shown_host("https://user:secret@example.org:8080/a.zip")
    'example.org'
    """
    return urlsplit(url).hostname or url


def download(url: str, part: Path, *, most: int, anyway: bool = False) -> None:
    """Write the file at `url` to `part`, which may hold its beginning.

    A beginning is continued if the server says that the file is still the same.

    Args:
        most: bytes that the file may have.
        anyway: continue also a beginning from another address or without a validator: the caller checks the whole.
    """
    _check_address(url)
    failures = 0
    while True:
        before = _size(part)
        try:
            _receive(url, part, most, anyway)
            return
        except _UnstableError as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= _TRIES:
                kept = _size(part)
                remedy = f"; {kept / _MB:.1f} MB are kept, run the same command again" if kept else ""
                raise DataError(f"{shown_host(url)}: {error}{remedy}") from error
            time.sleep(_PAUSE * failures)


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DataError(f"{url}: not an address like https://example.org/archive.zip")


def _receive(url: str, part: Path, most: int, anyway: bool) -> None:
    """One connection, from the bytes that are there to the end of the file."""
    import requests

    headers = {"Accept-Encoding": "identity", **_range(url, part, anyway)}
    with _as_our_errors(url), requests.get(url, headers=headers, stream=True, timeout=(_CONNECT, _STALL)) as response:
        start, length = _answer(url, part, response)
        if length is not None and start + length > most:
            raise DataError(f"{shown_host(url)}: offers {(start + length) / _MB:.0f} MB, more than the file has")
        if start == 0:
            part.unlink(missing_ok=True)
            validator = _validator(response.headers)
            write_json(_state_file(part), {"url": url, **({"validator": validator} if validator else {})})
        with part.open("ab") as file:
            received = start
            for block in response.raw.stream(_BLOCK, decode_content=False) if length != 0 else ():
                received += len(block)
                if received > most:
                    raise DataError(f"{shown_host(url)}: sends more than {most / _MB:.0f} MB, more than the file has")
                file.write(block)
                total = most if length is None else start + length
                report(received // _MB, total // _MB + 1, "MB")
    if length is not None and received < start + length:
        raise _UnstableError("the connection broke")
    report(received // _MB + 1, received // _MB + 1, "MB")


def _range(url: str, part: Path, anyway: bool) -> dict[str, str]:
    """Headers that ask for the rest of the file, if that is sure to be the rest of what is there."""
    if not _size(part):
        return {}
    try:
        state = cast(_State, read_json(_state_file(part), _State, "download again"))
    except ClassNormError:
        return {}
    asked = {"Range": f"bytes={_size(part)}-"}
    if state["url"] == url and "validator" in state:
        return asked | {"If-Range": state["validator"]}
    return asked if anyway else {}


def _answer(url: str, part: Path, response: Any) -> tuple[int, int | None]:
    """Where the bytes of a response start in the file, and their number if it is known."""
    host, status = shown_host(url), response.status_code
    if any(urlsplit(hop.url).scheme == "https" for hop in response.history) and response.url.startswith("http:"):
        raise DataError(f"{host}: leads to an address without encryption ({response.url})")
    if status == 416:  # nothing follows what is there: it is whole, or not of this file
        if response.headers.get("Content-Range", "").replace(" ", "") == f"bytes*/{_size(part)}":
            return _size(part), 0
        part.unlink(missing_ok=True)
        raise _UnstableError("the server has another version of the file")
    if status == 429 or status >= 500:
        raise _UnstableError(f"the server is not available now ({status})")
    if status not in (200, 206):
        raise DataError(f"{host}: does not have the file ({status} {response.reason})")
    if "text/html" in response.headers.get("Content-Type", ""):
        raise DataError(f"{host}: sends a web page instead of the file; open {url} in a browser to see why")
    length = response.headers.get("Content-Length", "")
    expected = int(length) if length.isdecimal() and len(length) < 19 else None
    if status == 200:
        return 0, expected
    given = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0].strip()
    if given != str(_size(part)):
        part.unlink(missing_ok=True)
        raise _UnstableError("the server sends another part of the file than it was asked for")
    return int(given), expected


def _validator(headers: Any) -> str | None:
    """What tells this version of the file from others; weak ETags do not tell bytes apart."""
    etag = headers.get("ETag", "")
    found = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")
    return found if found.isascii() and found.isprintable() and 0 < len(found) < 256 else None


@contextmanager
def _as_our_errors(url: str) -> Iterator[None]:
    import requests
    import urllib3

    try:
        yield
    except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
        raise _UnstableError(_reason(error)) from error
    except (requests.RequestException, UnicodeError) as error:  # too many redirects, an address that is none
        raise DataError(f"{url}: {' '.join(str(error).split())[:200]}") from error


def _reason(error: Exception) -> str:
    text = str(error)
    if "resolve" in text or "Name or service" in text or "getaddrinfo" in text:
        return "is not found (no network?)"
    if "timed out" in text or "imeout" in type(error).__name__:
        return "does not answer"
    if "refused" in text or "unreachable" in text:
        return "cannot be reached (no network?)"
    return "the connection broke"


def _state_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0
