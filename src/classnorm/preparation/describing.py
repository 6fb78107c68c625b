"""Descriptions → descriptors: encode sentences, keep attributes, or concatenate both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from classnorm.data.descriptions import Descriptions
from classnorm.data.names import match_names
from classnorm.data.provenance import Provenance
from classnorm.data.table_files import descriptor_writer
from classnorm.encoders.text import SetEncoder, TextEncoder, load_text_encoder
from classnorm.errors import ConfigError, DataError, ModelError
from classnorm.io.arrays import read_npz
from classnorm.io.files import digest
from classnorm.progress import notice


@dataclass(frozen=True, eq=False)
class Descriptors:
    """A descriptor for each class, with provenance."""

    names: tuple[str, ...]
    table: npt.NDArray[np.float32]  # [n_classes, d_a]
    columns: tuple[str, ...]
    provenance: Provenance = field(default_factory=Provenance)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of columns from each source."""
        width = self.table.shape[1]
        return self.provenance.descriptor_blocks(width) or (width,)

    def save(self, path: Path) -> None:
        """Write a file for `read_descriptors`; only `.npz` stores blocks and provenance."""
        extra = {"blocks": np.array(self.blocks), "provenance": self.provenance.as_array()}
        descriptor_writer(path)(path, self.names, self.table, self.columns, extra)


def describe(
    descriptions: Descriptions,
    encoder: str = "minilm",
    templates: Sequence[str] = (),
    *,
    cache: Path | None = None,
) -> Descriptors:
    """Compute a descriptor of each class.

    Tables are returned unchanged. Sentences are inserted into all templates and encoded; the descriptor is the mean
    vector of the class, scaled to unit length.

    Args:
        encoder: name of the text encoder; only loaded if there are sentences.
        templates: strings with {} for the sentence; by default the sentence alone.
        cache: `.npz` file to store descriptors in and to reuse them from.
    """
    for template in templates:
        if template.count("{}") != 1:
            raise ConfigError(f"template {template!r}: put {{}} where the text of the class goes, exactly once")
    if descriptions.table is not None:
        if templates:
            raise ConfigError(f"{descriptions.where}: holds numbers, which no template can frame; leave it out")
        source = Provenance.of(attributes=Path(descriptions.where).name) | descriptions.provenance
        return Descriptors(descriptions.names, descriptions.table, descriptions.columns, source)
    loaded = load_text_encoder(encoder)
    key = digest([descriptions.names, descriptions.sentences, list(templates), loaded.record()])
    cached = None if cache is None else _read_cache(cache, key)
    if cached is not None:
        notice(f"descriptors of {len(cached.names)} classes are in {cache}")
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
    blocks = (*first.blocks, *second.blocks)  # each gets a kernel of its own
    return Descriptors(
        first.names,
        np.concatenate([_unit(first.table), _unit(second.table[positions])], axis=1),
        (*first.columns, *second.columns),
        first.provenance | Provenance.of(joined=dict(second.provenance), descriptor_blocks=_sizes(blocks)),
    )


def recorded_text_encoder(described_by: Provenance) -> tuple[TextEncoder, tuple[str, ...]]:
    """Load the text encoder that made the descriptors of a model, and return it with the templates.

    Args:
        described_by: of `ZeroShotDataset` or `Scorer`.

    Raises:
        ModelError: the descriptors are not from text alone, or the encoder has changed.
    """
    if not described_by.is_text:
        raise ModelError("the descriptors of this model were not made from text alone, so it has no text encoder")
    record = described_by.text_encoder or {}
    if not {"name", "sha256"} <= record.keys():
        raise ModelError("the record of the model's text encoder is not readable; train the model again")
    encoder = load_text_encoder(str(record["name"]))
    if encoder.record()["sha256"] != record["sha256"]:
        raise ModelError(f"text encoder {encoder.name} is not the one that the model's descriptors were made with")
    return encoder, described_by.templates


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
    provenance = Provenance.of(
        attributes=f"{encoder.name}, {Path(descriptions.where).name}",
        text_encoder=encoder.record(),
        templates=list(frames),
        texts=key,
        descriptor_blocks=_sizes(blocks) if len(blocks) > 1 else None,
    )
    columns = tuple(f"{encoder.name.removeprefix('hf:')}_{i}" for i in range(width))
    return Descriptors(descriptions.names, table, columns, provenance)


def _read_cache(cache: Path, key: str) -> Descriptors | None:
    """Return the cached descriptors of the same texts and encoder, or None."""
    try:
        content = read_npz(cache, ("class_names", "descriptors", "columns", "provenance"))
        provenance = Provenance.from_array(content["provenance"], cache)
    except DataError:
        return None
    if provenance.get("texts") != key:
        return None
    names, columns = (tuple(content[part].tolist()) for part in ("class_names", "columns"))
    return Descriptors(names, np.asarray(content["descriptors"]), columns, provenance)


def _sizes(blocks: Sequence[int]) -> str:
    return ",".join(map(str, blocks))


def _unit(table: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(table / np.linalg.norm(table.astype(np.float64), axis=1, keepdims=True), dtype=np.float32)
