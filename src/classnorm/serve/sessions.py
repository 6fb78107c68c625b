"""What visitors add: an overlay of classes and examples over the models, in a file that any worker can load.

The name of the file is a hash of the visitor's key, so that the folder does not give the keys away.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from classnorm.io.files import locked, make_folder, replacing
from classnorm.serve.errors import RequestError
from classnorm.serve.settings import Limits

if TYPE_CHECKING:
    from classnorm.scoring import Scorer
    from classnorm.serve.models import Served

_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
_KEPT = 64  # overlays in memory, with their scorers
_KEPT_BYTES = 1 << 29  # of these
_SUFFIX = ".safetensors"
_BETWEEN_SWEEPS = 60.0  # seconds

Floats = npt.NDArray[np.float32]


def new_key() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Gift:
    """Examples of a class, given at once."""

    number: int
    name: str  # of the class
    rows: Floats  # [n, d_z]


@dataclass(frozen=True)
class Additions:
    """What a visitor added to a model."""

    classes: Mapping[str, Floats] = field(default_factory=dict)
    gifts: tuple[Gift, ...] = ()

    def over(self, scorer: Scorer) -> Scorer:
        """The scorer with the classes and examples."""
        known = set(scorer.class_names)
        scorer = scorer.add_classes({name: v for name, v in self.classes.items() if name not in known}, "your classes")
        gifts = [gift for gift in self.gifts if gift.name in scorer.class_names]
        if gifts:
            labels = [gift.name for gift in gifts for _ in gift.rows]
            scorer = scorer.add_examples(np.concatenate([gift.rows for gift in gifts]), labels)
        return scorer

    def count(self, name: str) -> int:
        """The number of examples of a class."""
        return sum(len(gift.rows) for gift in self.gifts if gift.name == name)


Overlay = Mapping[str, Additions]
"""Fingerprint of a model → what was added to it."""


class Visit:
    """An overlay as read from its file, with its scorers."""

    def __init__(self, overlay: Overlay | None = None) -> None:
        self.overlay: Overlay = overlay or {}
        self._scorers: dict[str, Scorer] = {}
        self._lock = threading.Lock()

    def additions(self, served: Served) -> Additions:
        return self.overlay.get(served.fingerprint, Additions())

    def scorer(self, served: Served) -> Scorer:
        """The model with the visitor's classes and examples; computed once. Takes time: call it in a thread."""
        additions = self.additions(served)
        if not additions.classes and not additions.gifts:
            return served.scorer
        with self._lock:
            if served.fingerprint not in self._scorers:
                self._scorers[served.fingerprint] = additions.over(served.scorer)
            return self._scorers[served.fingerprint]


class Sessions:
    """The overlays of all visitors."""

    def __init__(self, folder: Path, limits: Limits, scorer_bytes: int = 1) -> None:
        """
        Args:
            scorer_bytes: memory that a visitor's scorers take, beyond the models.
        """
        self.folder, self.limits = make_folder(folder), limits
        self._room = max(1, min(_KEPT, _KEPT_BYTES // scorer_bytes))
        self._kept: OrderedDict[str, tuple[tuple[int, ...], Visit]] = OrderedDict()
        self._lock = threading.Lock()
        self._swept = 0.0
        self.nobody = Visit()

    @staticmethod
    def is_key(key: str | None) -> bool:
        return key is not None and _KEY.fullmatch(key) is not None

    def visit(self, key: str | None) -> Visit:
        """The overlay of a visitor, as it is on disk now."""
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
        visit = Visit(_read(file))
        with self._lock:
            self._kept[file.name] = (version, visit)
            while len(self._kept) > self._room:
                self._kept.popitem(last=False)
        return visit

    def change(self, key: str, change: Callable[[Overlay], Overlay]) -> Visit:
        """Apply a change to the overlay of a visitor. Takes time: call it in a thread."""
        self.sweep()
        file = self._file(key)
        with locked(self.folder):
            overlay = change(self.visit(key).overlay)
            self._check(overlay)
            content = _packed(overlay)
            if len(content) > self.limits.session_mb << 20:
                raise RequestError(413, f"your classes and examples take more than {self.limits.session_mb} MB")
            with replacing(file) as temporary:
                temporary.write_bytes(content)
            with suppress(OSError):
                file.chmod(0o600)
        return self.visit(key)

    def forget(self, key: str) -> None:
        """Delete all that a visitor added."""
        self._file(key).unlink(missing_ok=True)

    def sweep(self, at_once: bool = False) -> None:
        """Delete overlays that are too old, and the oldest if all are too large together."""
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

    def _check(self, overlay: Overlay) -> None:
        for additions in overlay.values():
            if len(additions.classes) > self.limits.classes:
                raise RequestError(409, f"you have {self.limits.classes} classes, which is the limit; remove one first")
            if sum(len(gift.rows) for gift in additions.gifts) > self.limits.examples:
                raise RequestError(409, f"more than {self.limits.examples} examples; remove some first")

    def _file(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:48]}{_SUFFIX}"


def with_additions(overlay: Overlay, served: Served, **changes: Any) -> Overlay:
    """The overlay with changed additions to a model."""
    additions = replace(overlay.get(served.fingerprint, Additions()), **changes)
    return {**overlay, served.fingerprint: additions}


def _packed(overlay: Overlay) -> bytes:
    tensors: dict[str, npt.NDArray[Any]] = {}
    about: dict[str, Any] = {}
    for key, additions in overlay.items():
        if not additions.classes and not additions.gifts:
            continue
        about[key] = {"classes": list(additions.classes), "gifts": [[g.number, g.name] for g in additions.gifts]}
        tensors |= {f"{key}.class.{i}": np.array(vector) for i, vector in enumerate(additions.classes.values())}
        tensors |= {f"{key}.gift.{gift.number}": np.array(gift.rows) for gift in additions.gifts}
    tensors["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    return save_tensors(tensors)


def _read(file: Path) -> Overlay:
    """The overlay in a file; nothing if it is damaged or gone."""
    try:
        tensors = load_tensors(file.read_bytes())
        about = json.loads(tensors["about"].tobytes())
        return {
            key: Additions(
                {name: tensors[f"{key}.class.{i}"] for i, name in enumerate(part["classes"])},
                tuple(Gift(number, name, tensors[f"{key}.gift.{number}"]) for number, name in part["gifts"]),
            )
            for key, part in about.items()
        }
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return {}
