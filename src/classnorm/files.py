"""Files that appear whole or not at all: everything is written to a temporary name and renamed."""

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
    return OutputError(f"cannot write {path}: {error.strerror or error}; choose another place or free some space")


def make_folder(path: Path) -> Path:
    """Create `path` and its parents if they are missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def locked(folder: Path) -> FileLock:
    """A lock on `folder` against other processes of this machine; taken twice by one, it is held once.

    The lock file lies in the temporary directory: a run folder holds results only.
    """
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]
    place = make_folder(Path(tempfile.gettempdir()) / f"classnorm-locks-{getpass.getuser()}")
    return FileLock(place / f"{name}.lock", is_singleton=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path`; rename it to `path` on success, remove it on failure.

    Any `OSError` in between (no space, no permission) becomes an `OutputError` that names `path`.
    """
    make_folder(path.parent)
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=f".tmp{path.suffix}")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes files private; results are for sharing
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, document: Any) -> None:
    """Write `document` as indented JSON, whole or not at all."""
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def digest(document: Any) -> str:
    """SHA-256 of a JSON document, the same for the same content: a key for what decides a result."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def cache_folder() -> Path:
    """Where made things are kept that can be made again: the user's cache, or `CLASSNORM_CACHE`."""
    return Path(os.environ.get("CLASSNORM_CACHE") or platformdirs.user_cache_dir("classnorm"))
