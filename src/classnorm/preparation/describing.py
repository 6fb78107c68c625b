"""Descriptions → descriptors: encode sentences, keep attributes, or concatenate both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from classnorm.data.bundles import provenance_of
from classnorm.data.descriptions import Descriptions, match_names
from classnorm.data.table_files import descriptor_writer
from classnorm.encoders.text import SetEncoder, TextEncoder, load_text_encoder
from classnorm.errors import ConfigError, DataError, ModelError
from classnorm.io.arrays import read_npz
from classnorm.io.files import digest


@dataclass(frozen=True, eq=False)
class Descriptors:
    """A descriptor for each class, with provenance."""

    names: tuple[str, ...]
    table: npt.NDArray[np.float32]  # [n_classes, d_a]
    columns: tuple[str, ...]
    blocks: tuple[int, ...]  # number of columns from each source
    provenance: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write a file for `read_descriptors`; only `.npz` stores blocks and provenance."""
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
    """Compute a descriptor of each class.

    Tables are returned unchanged. Sentences are inserted into all templates and encoded; the descriptor is the mean
    vector of the class, scaled to unit length.

    Args:
        encoder: name of the text encoder; only loaded if there are sentences.
        templates: strings with {} for the sentence; by default the sentence alone.
        cache: `.npz` file to store descriptors in and to reuse them from.
        tell: called with a message if cached descriptors are used.
    """
    for template in templates:
        if template.count("{}") != 1:
            raise ConfigError(f"template {template!r}: put {{}} where the text of the class goes, exactly once")
    if descriptions.table is not None:
        if templates:
            raise ConfigError(f"{descriptions.where}: holds numbers, which no template can frame; leave it out")
        table, source = descriptions.table, {"attributes": Path(descriptions.where).name, **descriptions.provenance}
        sizes = source.get("descriptor_blocks", "").split(",")
        blocks = tuple(int(size) for size in sizes if size.isdecimal())
        blocks = blocks if sum(blocks) == table.shape[1] else (table.shape[1],)
        return Descriptors(descriptions.names, table, descriptions.columns, blocks, source)
    loaded = load_text_encoder(encoder)
    key = digest([descriptions.names, descriptions.sentences, list(templates), loaded.record()])
    cached = None if cache is None else _read_cache(cache, key)
    if cached is not None:
        tell(f"descriptors of {len(cached.names)} classes are in {cache}")
        return cached
    descriptors = _encode(descriptions, loaded, templates, key)
    if cache is not None:
        descriptors.save(cache)
    return descriptors


def join(first: Descriptors, second: Descriptors, source: str, where: str) -> Descriptors:
    """Concatenate the two descriptors of each class of `first`, each scaled to unit length.

    Neither outweighs the other, and the descriptor of a class does not depend on the other classes. `source` and
    `where` are the files of `first` and `second`, for error messages.
    """
    positions = match_names(first.names, source, second.names, where)
    blocks = (*first.blocks, *second.blocks)
    sizes = {"descriptor_blocks": ",".join(map(str, blocks))}  # each gets a kernel of its own
    return Descriptors(
        first.names,
        np.concatenate([_unit(first.table), _unit(second.table[positions])], axis=1),
        (*first.columns, *second.columns),
        blocks,
        {**first.provenance, "joined": json.dumps(second.provenance), **sizes},
    )


def recorded_text_encoder(described_by: Mapping[str, str]) -> tuple[TextEncoder, tuple[str, ...]]:
    """Load the text encoder that made the descriptors of a model, and return it with the templates.

    Args:
        described_by: of `ZeroShotDataset` or `Scorer`.

    Raises:
        ModelError: the descriptors are not from text alone, or the encoder has changed.
    """
    if "text_encoder" not in described_by or "joined" in described_by:
        raise ModelError("the descriptors of this model were not made from text alone, so it has no text encoder")
    try:
        record = json.loads(described_by["text_encoder"])
        name, checksum = str(record["name"]), record["sha256"]
        templates = tuple(map(str, json.loads(described_by.get("templates", '["{}"]'))))
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError("the record of the model's text encoder is not readable; train the model again") from error
    encoder = load_text_encoder(name)
    if encoder.record()["sha256"] != checksum:
        raise ModelError(f"text encoder {name} is not the one that the model's descriptors were made with")
    return encoder, templates


def framed_vectors(encoder: TextEncoder, templates: Sequence[str], sentences: Sequence[str]) -> npt.NDArray[np.float32]:
    """Vectors of sentences, each the mean over all templates, [n, d_a]."""
    texts = [frame.replace("{}", sentence) for sentence in sentences for frame in templates]
    vectors = encoder.encode(texts)
    return np.asarray(vectors.reshape(len(sentences), len(templates), -1).mean(axis=1))


def _encode(descriptions: Descriptions, encoder: TextEncoder, templates: Sequence[str], key: str) -> Descriptors:
    frames = templates or ("{}",)
    texts = [[frame.replace("{}", text) for frame in frames for text in rows] for rows in descriptions.sentences]
    vectors = encoder.encode([text for class_texts in texts for text in class_texts])
    ends = np.cumsum([len(class_texts) for class_texts in texts])
    table = _unit(np.stack([part.mean(axis=0) for part in np.split(vectors, ends[:-1])]))
    width = table.shape[1]
    blocks = encoder.block_sizes(width) if isinstance(encoder, SetEncoder) else (width,)
    provenance = {
        "attributes": f"{encoder.name}, {Path(descriptions.where).name}",
        "text_encoder": json.dumps(encoder.record()),
        "templates": json.dumps(frames),
        "texts": key,
        **({"descriptor_blocks": ",".join(map(str, blocks))} if len(blocks) > 1 else {}),
    }
    columns = tuple(f"{encoder.name.removeprefix('hf:')}_{i}" for i in range(width))
    return Descriptors(descriptions.names, table, columns, blocks, provenance)


def _read_cache(cache: Path, key: str) -> Descriptors | None:
    """Return the cached descriptors of the same texts and encoder, or None."""
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
    return np.asarray(table / np.linalg.norm(table.astype(np.float64), axis=1, keepdims=True), dtype=np.float32)
