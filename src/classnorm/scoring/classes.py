"""The classes of a model: names, descriptors, and the examples that users gave; and what these were made by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.checks import check_descriptors
from classnorm.data.names import respelled
from classnorm.data.provenance import Provenance
from classnorm.errors import DataError, unknown_name

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Examples:
    """Counts and sums of pictures by class, in the space of the prototypes. Counts of unlabelled ones are fractions."""

    names: tuple[str, ...] = ()
    counts: Floats = field(default_factory=lambda: np.empty(0))  # [n]
    sums: Floats = field(default_factory=lambda: np.empty((0, 0)))  # [n, k]

    def plus(self, other: Examples) -> Examples:
        """The pictures of both."""
        if not self.names or not other.names:
            return self if self.names else other
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        position = {name: i for i, name in enumerate(names)}
        counts, sums = np.zeros(len(names)), np.zeros((len(names), self.sums.shape[1]))
        for part in (self, other):
            index = [position[name] for name in part.names]
            counts[index] += part.counts
            sums[index] += part.sums
        return Examples(names, counts, sums)

    def of(self, names: Iterable[str]) -> Examples:
        """Those of the named classes."""
        wanted = set(names)
        index = [i for i, name in enumerate(self.names) if name in wanted]
        if len(index) == len(self.names):
            return self
        return Examples(tuple(self.names[i] for i in index), self.counts[index], self.sums[index])


@dataclass(frozen=True, eq=False)
class ClassTable:
    """The classes that compete, in a fixed order. Immutable: whatever changes it returns a new table."""

    names: tuple[str, ...]
    descriptors: npt.NDArray[np.float32]  # [n_classes, d_a]
    seen: npt.NDArray[np.bool_]  # [n_classes]
    examples: Examples = field(default_factory=Examples)
    """Labelled pictures that correct the prototypes of their classes."""
    unlabelled: Examples = field(default_factory=Examples)
    """The shares of unlabelled pictures in the classes."""
    undescribed: frozenset[str] = frozenset()
    """Classes known by pictures alone; their descriptors are guesses without weight."""

    @property
    def d_a(self) -> int:
        return int(self.descriptors.shape[1])

    @cached_property
    def position(self) -> dict[str, int]:
        """Name → position."""
        return {name: i for i, name in enumerate(self.names)}

    def positions(self, names: Iterable[str]) -> Ints:
        return np.array([self.position[name] for name in names], dtype=np.int64)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """``seen`` or ``unseen``, [n_classes]."""
        return tuple("seen" if is_seen else "unseen" for is_seen in self.seen.tolist())

    @cached_property
    def pictures(self) -> Examples:
        """Labelled and unlabelled ones."""
        return self.examples.plus(self.unlabelled)

    def spelled(self, names: Sequence[str] | str) -> Sequence[str]:
        """The names, or the single one, as the table spells them; an error if it does not know one."""
        names = respelled([names] if isinstance(names, str) else names, self.names)
        unknown = next((name for name in names if name not in self.position), None)
        if unknown is not None:
            raise unknown_name("class", unknown, self.names)
        return names

    def only(self, names: Sequence[str] | str) -> ClassTable:
        """The named classes, in this order."""
        names = self.spelled(names)
        index = self.positions(dict.fromkeys(names))
        return ClassTable(
            tuple(self.names[i] for i in index),
            self.descriptors[index],
            self.seen[index],
            self.examples.of(names),
            self.unlabelled.of(names),
            self.undescribed.intersection(names),
        )

    def without_examples(self, names: Sequence[str] | str | None = None) -> ClassTable:
        """Without the pictures, labelled or not, of one or several named classes, or of all. Classes that are known by
        pictures alone disappear."""
        forgotten = set(self.names if names is None else self.spelled(names))
        kept = [name for name in self.names if name not in forgotten]
        rest = replace(self, examples=self.examples.of(kept), unlabelled=self.unlabelled.of(kept))
        gone = self.undescribed & forgotten
        return rest.only([name for name in self.names if name not in gone]) if gone else rest

    def with_descriptors(
        self, descriptors: Mapping[str, npt.ArrayLike], where: str, order: Sequence[int] | None = None
    ) -> ClassTable:
        """With more unseen classes, by their descriptors.

        Known classes are skipped if their descriptor is the same; a different one is an error.

        Args:
            order: the columns of the given descriptors in the order of this table, if it is another.
        """
        if not descriptors:
            return self
        names, vectors = list(descriptors), [np.ravel(np.asarray(vector)) for vector in descriptors.values()]
        for name, vector in zip(names, vectors, strict=True):
            if len(vector) != self.d_a:
                raise DataError(
                    f"{where}: the descriptor of class {name!r} has {len(vector)} dimensions; "
                    f"the model was trained on {self.d_a}"
                )
        table = check_descriptors(vectors, names, where)
        table = table if order is None else table[:, order]
        given, names = names, respelled(names, self.names)
        new, known = [], np.array(self.descriptors)
        for i, name in enumerate(names):
            if name not in self.position:
                new.append(i)
            elif name in self.undescribed:
                known[self.position[name]] = table[i]
            elif not np.allclose(table[i], self.descriptors[self.position[name]], rtol=1e-4, atol=1e-6):
                spelling = f" (as {name!r})" if name != given[i] else ""
                raise DataError(
                    f"{where}: class {given[i]!r} is known to the model{spelling} with another descriptor; leave it "
                    "out or, if it is another class, rename it"
                )
        if not new and not self.undescribed.intersection(names):
            return self
        described = replace(self, descriptors=known, undescribed=self.undescribed.difference(names))
        return described._extended([names[i] for i in new], table[new])

    def with_examples(self, examples: Examples) -> ClassTable:
        """With more labelled pictures. A class that is not known is a new one, unseen and without a description."""
        new = [name for name in examples.names if name not in self.position]
        known = replace(self, examples=self.examples.plus(examples), undescribed=self.undescribed | frozenset(new))
        return known._extended(new, np.zeros((len(new), self.d_a), dtype=np.float32))

    def _extended(self, names: Sequence[str], descriptors: npt.NDArray[np.float32]) -> ClassTable:
        """With more unseen classes at the end."""
        return replace(
            self,
            names=(*self.names, *names),
            descriptors=np.concatenate([self.descriptors, descriptors]),
            seen=np.concatenate([self.seen, np.zeros(len(names), dtype=bool)]),
        )

    def document(self) -> dict[str, Any]:
        """What `model.json` says of the classes; the numbers are in `tensors`."""
        return {
            "class_names": list(self.names),
            "seen": self.seen.tolist(),
            **{kind: list(part.names) for kind, part in self._parts() if part.names},
            **({"undescribed": sorted(self.undescribed)} if self.undescribed else {}),
        }

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """The descriptors, and the counts and sums of the pictures."""
        tensors: dict[str, npt.NDArray[Any]] = {"descriptors": self.descriptors}
        for kind, part in self._parts():
            if part.names:
                tensors |= {f"{kind}.counts": part.counts, f"{kind}.sums": part.sums}
        return tensors

    def _parts(self) -> list[tuple[str, Examples]]:
        return [("examples", self.examples), ("unlabelled", self.unlabelled)]

    @classmethod
    def read(cls, document: Mapping[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> ClassTable:
        """From the document of a saved model and the tensors that are not the model's, which are taken out one by
        one."""
        names, seen = tuple(document["class_names"]), np.array(document["seen"], dtype=bool)
        descriptors = tensors.pop("descriptors")
        if not len(names) == len(set(names)) == len(seen) or descriptors.shape != (
            len(names),
            document["descriptor_dim"],
        ):
            raise ValueError("class names, seen mask and descriptors differ in length")
        examples, unlabelled = (_read_examples(kind, document, tensors) for kind in ("examples", "unlabelled"))
        undescribed = frozenset(_read_names("undescribed", document))
        if tensors:
            raise ValueError(f"unknown tensor {min(tensors)}")
        return cls(names, descriptors, seen, examples, unlabelled, undescribed)


def _read_examples(kind: str, document: Mapping[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> Examples:
    names = _read_names(kind, document)
    if not names:
        return Examples()
    counts, sums = (np.asarray(tensors.pop(f"{kind}.{part}"), dtype=np.float64) for part in ("counts", "sums"))
    if sums.ndim != 2 or not len(names) == len(counts) == len(sums):
        raise ValueError(f"names, counts and sums of {kind} differ in length")
    if not (np.isfinite(sums).all() and (counts > 0).all() and np.isfinite(counts).all()):
        raise ValueError(f"{kind} with invalid counts or sums")
    return Examples(names, counts, sums)


def _read_names(key: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of different classes of the model."""
    names = document.get(key, [])
    known = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not known or len(set(names)) < len(names) or not set(names) <= set(document["class_names"]):
        raise ValueError(f"{key} must be a list of class names")
    return tuple(names)


@dataclass(frozen=True)
class Origin:
    """What features and descriptors were made by, as far as it is known."""

    encoder: Mapping[str, Any] | None = None
    """The record of the image encoder that made the features (`Encoder.record`)."""
    described_by: Provenance = field(default_factory=Provenance)
    """The text encoder and the templates that made the descriptors; empty for attributes and if unknown."""
    attribute_names: tuple[str, ...] | None = None  # [d_a], columns of the descriptors

    def document(self) -> dict[str, Any]:
        """What `model.json` says of it; the encoder has a file of its own."""
        return {
            **({} if self.attribute_names is None else {"attribute_names": list(self.attribute_names)}),
            **({"described_by": dict(self.described_by)} if self.described_by else {}),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any], encoder: Mapping[str, Any] | None) -> Origin:
        """From the document of a saved model, and the record of its encoder."""
        names, d_a = document.get("attribute_names"), document["descriptor_dim"]
        if names is not None and len(names) != d_a:
            raise ValueError(f"attribute_names must be a list of {d_a} names")
        return cls(encoder, Provenance(document.get("described_by", {})), None if names is None else tuple(names))
