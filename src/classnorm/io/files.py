"""Atomic file writes (to a temporary file that is then renamed), locks, and the cache folder."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
from filelock import BaseFileLock, FileLock

from classnorm.errors import OutputError

_MACHINE = hashlib.sha256(platform.node().encode()).hexdigest()[:8]  # processes of others have other numbers
_LONGEST_NAME = 60  # characters of a name within the name of a temporary file


def _cannot_write(path: Path, error: OSError) -> OutputError:
    space = " or free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""
    return OutputError(f"cannot write {path}: {error.strerror or error}; choose another location{space}")


def make_folder(path: Path) -> Path:
    """Create `path` and its parents if they are missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a reentrant lock on a file or folder to be written, which excludes other processes.

    The lock is a hidden file beside it, so that processes with other temporary directories find it; it is gone when
    nobody holds it.
    """
    name = make_folder(path.parent).resolve() / f".{path.name[:_LONGEST_NAME]}.lock"
    try:
        lock = FileLock(name, is_singleton=True)
        while not _is_on_disk(lock.acquire().lock, name):  # its last holder has deleted it meanwhile
            lock.release()
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):
                name.unlink()  # while it is held: nobody can hold one that is not on the disk
        lock.release()


@contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Create a folder and hold its lock; after an error, new folders that are still empty are removed."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        with locked(path):
            make_folder(path)
            yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def _is_on_disk(lock: BaseFileLock, path: Path) -> bool:
    """Whether the file that is locked is still the one that others would lock."""
    handle = lock._context.lock_file_fd
    try:
        return handle is None or os.fstat(handle).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file next to `path`; rename it to `path` on success, delete it on failure.

    Any `OSError` inside the block (disk full, permission denied) becomes an `OutputError` that names `path`.
    """
    make_folder(path.parent)
    temporary = None
    try:
        prefix = f".{path.name[:_LONGEST_NAME]}."
        _sweep(path.parent, prefix)
        owner = f"{_MACHINE}-{os.getpid()}."
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix + owner, suffix=f".tmp{path.suffix}")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp creates private files; results are meant to be shared
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def _sweep(folder: Path, prefix: str) -> None:
    """Delete temporary files of this name that a killed process of this machine has left."""
    for file in folder.glob(f"{glob.escape(prefix)}{_MACHINE}-*.tmp*"):
        process = file.name.removeprefix(prefix).removeprefix(f"{_MACHINE}-").partition(".")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            with suppress(OSError):
                file.unlink()


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # there a signal 0 would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, document: Any) -> None:
    """Write `document` as indented JSON atomically."""
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def digest(document: Any) -> str:
    """Return the SHA-256 of a JSON document, independent of key order. Used as a cache key."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def cache_folder() -> Path:
    """Return the folder for files that can be recomputed: `CLASSNORM_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("CLASSNORM_CACHE") or platformdirs.user_cache_dir("classnorm"))
