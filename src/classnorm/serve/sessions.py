"""Sessions: the classes and examples that a visitor adds to the models, in a file that any worker can load.

The name of the file is a hash of the visitor's key, so that the folder does not give the keys away.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from classnorm.errors import DataError, OutputError
from classnorm.io.documents import parse_json, read_regular
from classnorm.io.files import locked, locked_folder, make_folder, replacing
from classnorm.results.run_folder import ENCODER
from classnorm.serve.messages import RequestError
from classnorm.serve.settings import Limits, ServeSettings

if TYPE_CHECKING:
    from classnorm.scoring import Scorer
    from classnorm.serve.models import Served

_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
_KEPT = 64  # sessions in memory, with their scorers
_KEPT_BYTES = 1 << 29  # of these
_SUFFIX = ".safetensors"
_BETWEEN_SWEEPS = 60.0  # seconds
_REMEDY = "it is left out"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # of a saved model
_PREFIX = ".saving-"

Floats = npt.NDArray[np.float32]


def new_key() -> str:
    return secrets.token_urlsafe(32)


class AboutShape(TypedDict):
    """What a session adds to a model, in its file; the numbers are beside it."""

    classes: list[str]
    gifts: list[list[Any]]


@dataclass(frozen=True)
class UserExamples:
    """Examples of a class, given at once."""

    number: int
    name: str  # of the class
    rows: Floats  # [n, d_z]


@dataclass(frozen=True)
class Additions:
    """What a visitor added to a model."""

    classes: Mapping[str, Floats] = field(default_factory=dict)
    examples: tuple[UserExamples, ...] = ()

    def over(self, scorer: Scorer) -> Scorer:
        """The scorer with the classes and examples."""
        known = scorer.classes.position
        scorer = scorer.add_classes({name: v for name, v in self.classes.items() if name not in known}, "your classes")
        examples = [given for given in self.examples if given.name in scorer.classes.position]
        if examples:
            labels = [given.name for given in examples for _ in given.rows]
            scorer = scorer.add_examples(np.concatenate([given.rows for given in examples]), labels)
        return scorer

    def count(self, name: str | None = None) -> int:
        """The number of examples of a class, or of all."""
        return sum(len(given.rows) for given in self.examples if name in (None, given.name))


class Session:
    """What a visitor added to the models, as read from a file, and the scorers with it."""

    def __init__(self, additions: Mapping[str, Additions] | None = None) -> None:
        """
        Args:
            additions: fingerprint of a model → what was added to it.
        """
        self.additions: Mapping[str, Additions] = additions or {}
        self._scorers: dict[str, Scorer] = {}
        self._lock = threading.Lock()

    def of(self, served: Served) -> Additions:
        """What was added to a model."""
        return self.additions.get(served.fingerprint, Additions())

    def with_additions(self, served: Served, **changes: Any) -> Session:
        """With changed additions to a model."""
        return Session({**self.additions, served.fingerprint: replace(self.of(served), **changes)})

    def scorer(self, served: Served) -> Scorer:
        """The model with the visitor's classes and examples; computed once. Takes time: call it in a thread."""
        additions = self.of(served)
        if not additions.classes and not additions.examples:
            return served.scorer
        with self._lock:
            if served.fingerprint not in self._scorers:
                self._scorers[served.fingerprint] = additions.over(served.scorer)
            return self._scorers[served.fingerprint]


class Sessions:
    """The sessions of all visitors."""

    def __init__(self, folder: Path, limits: Limits, scorer_bytes: int = 1) -> None:
        """
        Args:
            scorer_bytes: memory that a visitor's scorers take, beyond the models.
        """
        self.folder, self.limits = make_folder(folder), limits
        self._room = max(1, min(_KEPT, _KEPT_BYTES // scorer_bytes))
        self._kept: OrderedDict[str, tuple[tuple[int, ...], Session]] = OrderedDict()
        self._lock = threading.Lock()
        self._swept = 0.0
        self.nobody = Session()

    @staticmethod
    def is_key(key: str | None) -> bool:
        return key is not None and _KEY.fullmatch(key) is not None

    def get(self, key: str | None) -> Session:
        """The session of a visitor, as it is on disk now."""
        if key is None:
            return self.nobody
        file = self._file(key)
        try:
            state = file.stat()
        except OSError:
            return self.nobody
        version = (state.st_mtime_ns, state.st_size, state.st_ino)
        if time.time() - state.st_mtime > 86400 * self.limits.session_days:
            return self.nobody
        with self._lock:
            kept = self._kept.get(file.name)
            if kept is not None and kept[0] == version:
                self._kept.move_to_end(file.name)
                return kept[1]
        session = _read(file)
        with self._lock:
            self._kept[file.name] = (version, session)
            while len(self._kept) > self._room:
                self._kept.popitem(last=False)
        return session

    def change(self, key: str, change: Callable[[Session], Session]) -> Session:
        """Apply a change to the session of a visitor. Takes time: call it in a thread."""
        self.sweep()
        file = self._file(key)
        with locked(self.folder):
            session = change(self.get(key))
            self._check(session)
            content = _packed(session)
            if len(content) > self.limits.session_mb << 20:
                raise RequestError(413, f"your classes and examples take more than {self.limits.session_mb} MB")
            with replacing(file) as temporary:
                temporary.write_bytes(content)
            with suppress(OSError):
                file.chmod(0o600)
        return self.get(key)

    def forget(self, key: str) -> None:
        """Delete all that a visitor added."""
        self._file(key).unlink(missing_ok=True)

    def sweep(self, at_once: bool = False) -> None:
        """Delete sessions that are too old, and the oldest if all are too large together."""
        if not at_once and time.monotonic() - self._swept < _BETWEEN_SWEEPS:
            return
        self._swept = time.monotonic()
        files: list[tuple[float, int, Path]] = []
        for entry in os.scandir(self.folder):
            with suppress(OSError):
                state = entry.stat()
                files.append((state.st_mtime, state.st_size, Path(entry.path)))
        left = self.limits.sessions_mb << 20
        for changed, size, file in sorted(files, reverse=True):
            left -= size
            if left < 0 or time.time() - changed > 86400 * self.limits.session_days:
                with suppress(OSError):
                    file.unlink()

    def _check(self, session: Session) -> None:
        for additions in session.additions.values():
            if len(additions.classes) > self.limits.classes:
                raise RequestError(409, f"you have {self.limits.classes} classes, which is the limit; remove one first")
            if additions.count() > self.limits.examples:
                raise RequestError(409, f"more than {self.limits.examples} examples; remove some first")

    def _file(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:48]}{_SUFFIX}"


def _packed(session: Session) -> bytes:
    tensors: dict[str, npt.NDArray[Any]] = {}
    about: dict[str, AboutShape] = {}
    for key, additions in session.additions.items():
        if not additions.classes and not additions.examples:
            continue
        numbers = [[given.number, given.name] for given in additions.examples]
        about[key] = {"classes": list(additions.classes), "gifts": numbers}
        tensors |= {f"{key}.class.{i}": np.array(vector) for i, vector in enumerate(additions.classes.values())}
        tensors |= {f"{key}.gift.{given.number}": np.array(given.rows) for given in additions.examples}
    tensors["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    return save_tensors(tensors)


def _read(file: Path) -> Session:
    """The session in a file; an empty one if it is damaged or gone."""
    try:
        tensors = load_tensors(read_regular(file, _REMEDY))
        about = parse_json(tensors["about"].tobytes(), dict[str, AboutShape], str(file), _REMEDY)
        return Session(
            {
                key: Additions(
                    {name: tensors[f"{key}.class.{i}"] for i, name in enumerate(part["classes"])},
                    tuple(UserExamples(int(n), str(name), tensors[f"{key}.gift.{n}"]) for n, name in part["gifts"]),
                )
                for key, part in about.items()
            }
        )
    except (DataError, ValueError, KeyError, TypeError, SafetensorError):
        return Session()


def save_model(served: Served, session: Session, name: Any, settings: ServeSettings) -> str:
    """Write the model with the visitor's classes and examples, all or nothing, and return its name."""
    folder = settings.save_folder
    if folder is None:
        raise RequestError(403, "this server saves no models: it was started without a folder for them")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(400, "name must have 1 to 64 letters, digits, - or _, and start with a letter or digit")
    with locked_folder(folder):
        for left in folder.glob(f"{_PREFIX}*"):  # by a server that was killed
            shutil.rmtree(left, ignore_errors=True)
        if (folder / name).exists():
            raise RequestError(409, f"there is a model {name} already; choose another name")
        if sum(entry.is_dir() for entry in os.scandir(folder)) >= settings.limits.saved:
            raise RequestError(409, f"there are {settings.limits.saved} saved models, which is the limit")
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=_PREFIX))
        try:
            session.scorer(served).save(temporary)
            if (served.folder / ENCODER).is_file():
                shutil.copyfile(served.folder / ENCODER, temporary / ENCODER)
            temporary.chmod(0o755)
            temporary.rename(folder / name)
        except OSError as error:
            raise OutputError(f"cannot write the model: {error.strerror}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return name


def export_model(served: Served, session: Session) -> bytes:
    """The model with the visitor's classes as ONNX: features → scores and probabilities."""
    from classnorm.scoring.onnx_export import export_onnx

    with tempfile.TemporaryDirectory(prefix="classnorm-export-") as folder:
        files = export_onnx(session.scorer(served), Path(folder) / "model.onnx")
        return files[0].read_bytes()
