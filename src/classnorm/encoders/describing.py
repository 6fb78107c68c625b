"""Descriptions → descriptors: sentences are encoded and averaged, attributes pass through, both can be joined."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.bundle import provenance_of, read_npz
from classnorm.data.descriptions import Descriptions, match_names
from classnorm.data.table_files import descriptor_writer
from classnorm.encoders.text import TextEncoder, load_text_encoder
from classnorm.errors import ConfigError, DataError
from classnorm.files import digest

__all__ = ["Descriptors", "describe", "join"]


@dataclass(frozen=True, eq=False)
class Descriptors:
    """A descriptor for each class, and how they came to be."""

    names: tuple[str, ...]
    table: npt.NDArray[np.float32]  # [n_classes, d_a]
    columns: tuple[str, ...]
    blocks: tuple[int, ...]  # how many columns come from each source
    provenance: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write what `read_descriptors` reads; an `.npz` file remembers blocks and provenance, too."""
        provenance = np.array([f"{key}={value}" for key, value in self.provenance.items()], dtype=np.str_)
        extra = {"blocks": np.array(self.blocks), "provenance": provenance}
        descriptor_writer(path)(path, self.names, self.table, self.columns, extra)


def describe(
    descriptions: Descriptions,
    encoder: str = "minilm",
    templates: Sequence[str] = (),
    *,
    cache: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Descriptors:
    """A descriptor of each class.

    A table passes through. Sentences become the mean, of unit length, of the vectors of all sentences in all templates.

    Args:
        encoder: of sentences, by its name; not loaded where there are none.
        templates: texts with {} in the place of the sentence; none is the sentence alone.
        cache: an `.npz` file; encoded sentences are kept there and taken from there the next time.
        tell: told when they are.
    """
    for template in templates:
        if template.count("{}") != 1:
            raise ConfigError(f"template {template!r}: put {{}} where the text of the class goes, once")
    if descriptions.table is not None:
        if templates:
            raise ConfigError(f"{descriptions.where}: holds numbers, which no template can frame; leave it out")
        table, source = descriptions.table, {"attributes": Path(descriptions.where).name, **descriptions.provenance}
        return Descriptors(descriptions.names, table, descriptions.columns, (table.shape[1],), source)
    loaded = load_text_encoder(encoder)
    document = [descriptions.names, descriptions.sentences, list(templates), loaded.record()]
    key = digest(document)
    found = None if cache is None else _read_cache(cache, key)
    if found is not None:
        tell(f"descriptors of {len(found.names)} classes are in {cache}")
        return found
    made = _encode(descriptions, loaded, templates, key)
    if cache is not None:
        made.save(cache)
    return made


def join(first: Descriptors, second: Descriptors, of: str, where: str) -> Descriptors:
    """Both descriptors of each class of `first`, one after the other, each scaled to unit length.

    So neither outweighs the other, and a class has the same descriptor whatever other classes there are.
    """
    places = match_names(first.names, of, second.names, where)
    return Descriptors(
        first.names,
        np.concatenate([_unit(first.table), _unit(second.table[places])], axis=1),
        (*first.columns, *second.columns),
        (*first.blocks, *second.blocks),
        {**first.provenance, "joined": json.dumps(second.provenance)},
    )


def _encode(descriptions: Descriptions, encoder: TextEncoder, templates: Sequence[str], key: str) -> Descriptors:
    frames = templates or ("{}",)
    texts = [[frame.replace("{}", text) for frame in frames for text in said] for said in descriptions.sentences]
    vectors = encoder.encode([text for of_class in texts for text in of_class])
    ends = np.cumsum([len(of_class) for of_class in texts])
    table = _unit(np.stack([part.mean(axis=0) for part in np.split(vectors, ends[:-1])]))
    provenance = {
        "attributes": f"{encoder.name}, {Path(descriptions.where).name}",
        "text_encoder": json.dumps(encoder.record()),
        "templates": json.dumps(frames),
        "texts": key,
    }
    columns = tuple(f"{encoder.name.removeprefix('hf:')}_{i}" for i in range(table.shape[1]))
    return Descriptors(descriptions.names, table, columns, (table.shape[1],), provenance)


def _read_cache(cache: Path, key: str) -> Descriptors | None:
    """What was made of the same texts by the same encoder, if it is there."""
    try:
        content = read_npz(cache, ("class_names", "descriptors", "columns", "blocks", "provenance"))
        provenance = provenance_of(content, cache)
    except DataError:
        return None
    if provenance.get("texts") != key:
        return None
    names, columns, blocks = (tuple(content[part].tolist()) for part in ("class_names", "columns", "blocks"))
    return Descriptors(names, np.asarray(content["descriptors"]), columns, blocks, provenance)


def _unit(table: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    scaled: npt.NDArray[np.floating[Any]] = table / np.linalg.norm(table.astype(np.float64), axis=1, keepdims=True)
    return scaled.astype(np.float32)
