"""A download that survives bad connections: it continues where it stopped, also in another process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast
from urllib.parse import urlsplit

from classnorm.errors import ClassNormError, DataError
from classnorm.io.documents import read_json
from classnorm.io.files import write_json
from classnorm.progress import OnProgress, Progress

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


def download(url: str, part: Path, *, most: int, anyway: bool = False, progress: OnProgress | None = None) -> None:
    """Write the file at `url` to `part`, which may hold its beginning.

    A beginning is continued if the server says that the file is still the same.

    Args:
        most: bytes that the file may have.
        anyway: continue also a beginning from another address or without a validator: the caller checks the whole.
        progress: called with MB received.
    """
    _check_address(url)
    failures = 0
    while True:
        before = _size(part)
        try:
            _receive(url, part, most, anyway, progress)
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


def _receive(url: str, part: Path, most: int, anyway: bool, progress: OnProgress | None) -> None:
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
                if progress is not None:
                    total = most if length is None else start + length
                    progress(Progress(received // _MB, total // _MB + 1, "MB"))
    if length is not None and received < start + length:
        raise _UnstableError("the connection broke")
    if progress is not None:
        progress(Progress(received // _MB + 1, received // _MB + 1, "MB"))


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
