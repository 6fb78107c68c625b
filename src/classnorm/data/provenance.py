"""`Provenance`: where the features, the descriptors and the split of a dataset are from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from classnorm.errors import DataError
from classnorm.io.arrays import Array, texts

_TEXT = ("text_encoder", "templates", "joined")  # how descriptors were made from text
_DESCRIPTORS = ("attributes", "descriptor_blocks", *_TEXT)
_FEATURES = ("features", "encoder", "images", "skipped")


@dataclass(frozen=True, eq=False)
class Provenance(Mapping[str, str]):
    """Texts by key, as in files and results; those with a known meaning are parsed here and nowhere else.

    Files of other programs may have any text under any key: what cannot be parsed counts as not recorded.

    >>> source = Provenance.of(features="vit", encoder={"name": "resnet18"}, skipped=None)
    >>> source.encoder, dict(source)
    ({'name': 'resnet18'}, {'features': 'vit', 'encoder': '{"name": "resnet18"}'})
    """

    entries: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, **values: Any) -> Provenance:
        """Texts as they are, and other values as JSON; None leaves a key out."""
        stated = {key: value for key, value in values.items() if value is not None}
        return cls({key: value if isinstance(value, str) else json.dumps(value) for key, value in stated.items()})

    @classmethod
    def from_array(cls, array: Array | None, path: Path) -> Provenance:
        """Read the array `provenance` of a file, texts of the form key=value."""
        pairs = [] if array is None else [pair.partition("=") for pair in texts(array, str(path))]
        if not all(separator for _, separator, _ in pairs):
            raise DataError(f"{path}: provenance must contain strings of the form key=value")
        return cls({key: value for key, _, value in pairs})

    def as_array(self) -> Array:
        """The array that `from_array` reads."""
        return np.array([f"{key}={value}" for key, value in self.items()], dtype=np.str_)

    def __getitem__(self, key: str) -> str:
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __or__(self, other: Mapping[str, str]) -> Provenance:
        """Both; of a key in both, the text of `other`."""
        return Provenance({**self, **other})

    def __repr__(self) -> str:
        return f"Provenance({dict(self)})"

    def only(self, *keys: str) -> Provenance:
        """The entries with these keys."""
        return Provenance({key: text for key, text in self.items() if key in keys})

    def without(self, *keys: str) -> Provenance:
        """The entries with other keys."""
        return Provenance({key: text for key, text in self.items() if key not in keys})

    @property
    def of_features(self) -> Provenance:
        """The entries about the features."""
        return self.only(*_FEATURES)

    @property
    def of_descriptors(self) -> Provenance:
        """The entries about the descriptors."""
        return self.only(*_DESCRIPTORS)

    @property
    def of_text(self) -> Provenance:
        """The text encoder and the templates of the descriptors; empty for attributes."""
        return self.only(*_TEXT)

    def parsed(self, key: str) -> Any:
        """The JSON value of an entry; the text itself if it is no JSON, None if there is no such entry."""
        try:
            return json.loads(self.get(key, "null"))
        except (ValueError, RecursionError):
            return self[key]

    def _record(self, key: str) -> dict[str, Any] | None:
        value = self.parsed(key)
        return value if isinstance(value, dict) else None

    @property
    def encoder(self) -> dict[str, Any] | None:
        """The record of the encoder of the features."""
        return self._record("encoder")

    @property
    def skipped(self) -> dict[str, str]:
        """File → why it could not be read and has no features."""
        return self._record("skipped") or {}

    def feature_blocks(self, d_z: int) -> tuple[int, ...]:
        """The dimensions that each of several encoders contributes to features; empty if not recorded."""
        parts = (self.encoder or {}).get("parts")
        encoders = parts if isinstance(parts, list) else []
        sizes = ",".join(str(encoder.get("d_z")) for encoder in encoders if isinstance(encoder, dict))
        return _adding_up(sizes or self.get("feature_blocks", ""), d_z)

    @property
    def text_encoder(self) -> dict[str, Any] | None:
        """The record of the encoder of the text that the descriptors, or the first part of them, were made from."""
        return self._record("text_encoder")

    @property
    def is_text(self) -> bool:
        """Whether the descriptors were made from text alone."""
        return "text_encoder" in self and "joined" not in self

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates of that text."""
        templates = self.parsed("templates")
        return tuple(map(str, templates)) if isinstance(templates, list) else ("{}",)

    @property
    def joined(self) -> Provenance:
        """Where the second part of joined descriptors is from."""
        return Provenance({key: str(text) for key, text in (self._record("joined") or {}).items()})

    def descriptor_blocks(self, d_a: int) -> tuple[int, ...]:
        """The columns of descriptors that each source contributes; empty if not recorded."""
        return _adding_up(self.get("descriptor_blocks", ""), d_a)


def _adding_up(sizes: str, total: int) -> tuple[int, ...]:
    """The sizes in a text like ``312,384`` if they add up to the total, and nothing otherwise."""
    try:
        numbers = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        return ()
    return numbers if sum(numbers) == total and min(numbers) > 0 else ()
