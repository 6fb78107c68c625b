"""Atomic file writes (to a temporary file that is then renamed), locks, and the cache folder."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

from classnorm.errors import OutputError

__all__ = ["cache_folder", "digest", "locked", "make_folder", "replacing", "write_json", "write_text"]


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path}: {error.strerror or error}; choose another location or free some space")


def make_folder(path: Path) -> Path:
    """Create `path` and its parents if they are missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def locked(folder: Path) -> FileLock:
    """Return a reentrant lock on `folder` that excludes other processes on this machine.

    The lock file is in the temporary directory, so that run folders contain only results.
    """
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]
    locks = make_folder(Path(tempfile.gettempdir()) / f"classnorm-locks-{getpass.getuser()}")
    return FileLock(locks / f"{name}.lock", is_singleton=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file next to `path`; rename it to `path` on success, delete it on failure.

    Any `OSError` inside the block (disk full, permission denied) becomes an `OutputError` that names `path`.
    """
    make_folder(path.parent)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=f".tmp{path.suffix}")
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
