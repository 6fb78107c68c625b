"""Archives of others: nothing is written outside the target, no links are made, and sizes are limited."""

from __future__ import annotations

import gzip
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from classnorm.errors import DataError
from classnorm.progress import report

_BLOCK = 1 << 20
_HEADER = 1 << 24  # bytes that are read at once: more than any header of an archive has
_MEMBERS = 200_000
_MB = 1 << 20
_NO_NAME = re.compile(r"[\x00-\x1f\x7f:\\]")


def unpack(archive: Path, target: Path, *, most: int) -> tuple[int, int]:
    """Unpack a zip or gzipped tar file into the empty folder `target`.

    Args:
        most: bytes that all files together may have.

    Returns:
        How many files were written, and how many bytes.
    """
    with _as_our_errors(archive), archive.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start[:2] == b"PK":
            members = _zip_members(archive, file)
        elif start[:2] == b"\x1f\x8b":
            members = _tar_members(archive, file)
        else:
            raise DataError(f"{archive.name}: neither a zip nor a gzipped tar file")
        files = written = 0
        for name, content in members:
            path = target / _safe_name(archive, name)
            files += 1
            if files > _MEMBERS:
                raise DataError(f"{archive.name}: has more than {_MEMBERS} files, more than is plausible")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as copy:
                while block := content.read(_BLOCK):
                    written += len(block)
                    if written > most:
                        raise DataError(f"{archive.name}: unpacks to more than {most >> 20} MB, more than is plausible")
                    copy.write(block)
            report(written // _MB, most // _MB, "MB")
    return files, written


def _safe_name(archive: Path, name: str) -> PurePosixPath:
    """The path of a member, which cannot lead out of the target on any system."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or _NO_NAME.search(name) or len(name) > 1024:
        raise DataError(
            f"{archive.name}: contains {name[:80]!r}, which is no path inside the folder; it is not unpacked"
        )
    return path


def _zip_members(archive: Path, file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(file) as bundle:
        for info in bundle.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                raise DataError(f"{archive.name}: {info.filename[:80]!r} is a link or a device; it is not unpacked")
            if info.flag_bits & 1:
                raise DataError(f"{archive.name}: is encrypted")
            with bundle.open(info) as content:
                yield info.filename, content


def _tar_members(archive: Path, file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    with gzip.open(file) as unzipped, tarfile.open(fileobj=cast(Any, _Bounded(unzipped)), mode="r:") as bundle:
        for member in bundle:
            if member.isdir():
                continue
            content = bundle.extractfile(member) if member.isreg() else None
            if content is None:
                raise DataError(f"{archive.name}: {member.name[:80]!r} is a link or a device; it is not unpacked")
            with content:
                yield member.name, content


class _Bounded:
    """A file that refuses to read much at once: a header that says so would fill the memory."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _HEADER:
            raise tarfile.ReadError("a header that is too long")
        return self.file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        return self.file.seek(position, whence)

    def tell(self) -> int:
        return self.file.tell()


@contextmanager
def _as_our_errors(archive: Path) -> Iterator[None]:
    damaged = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError)
    try:
        yield
    except FileExistsError as error:
        raise DataError(f"{archive.name}: contains a file twice, or a file in the place of a folder") from error
    except (*damaged, NotImplementedError, ValueError, IndexError, OverflowError, NotADirectoryError) as error:
        raise DataError(f"{archive.name}: damaged ({' '.join(str(error).split())[:100] or 'ends early'})") from error
