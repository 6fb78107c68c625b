"""What rows are compared with: the vectors of the classes, from their descriptions and from pictures.

In the space of a method where rows and prototypes can be averaged (`ExampleSpace`), the prototype of a class with n
pictures is

    (τ · described prototype + sum of the pictures) / (τ + n),

the posterior mean if both are normal. τ says how many pictures a description is worth. Counts and sums are kept in
float64, so neither the order of the pictures nor how they are divided among calls matters.

Unlabelled pictures: prototypes and class shares from soft assignments, with the descriptions as prior, by expectation
maximisation in a few closed-form steps. Each picture is divided among the classes by its probabilities under the
prototypes and class shares so far; then its parts count like labelled pictures, and the shares are those of the classes
in all pictures. Prototypes that have moved to the pictures score higher, those of unseen classes most: their penalty is
the one at which as many pictures are called unseen as before. The result is *transductive*: it has seen the pictures
that it may be scored on, so its scores are never comparable to those of a model that has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data.row_store import Features, RowView, row_blocks
from classnorm.methods import ProductModel, ZeroShotModel
from classnorm.methods.model import ExampleSpace
from classnorm.metrics import Calibration, softmax
from classnorm.scoring.classes import ClassTable, Examples, Floats, Ints
from classnorm.scoring.validation import DescriptionWeight

_NEAREST = 3  # classes whose descriptors stand in for that of a class without one


@dataclass(frozen=True, eq=False)
class ClassVectors:
    """The vectors of all classes of a table, computed once, and the logits of rows for them."""

    model: ZeroShotModel
    classes: ClassTable
    weight: DescriptionWeight
    block: int
    """Classes whose prototypes are computed together: a method may compare them with all seen classes."""
    dtype: torch.dtype
    """The type of products."""
    table: Tensor
    """[n_classes, k], or the prototypes if the model has no such vectors."""
    corrections: Corrections | None
    """What pictures change; None if there are none."""
    penalties: Tensor | None  # [n_classes]

    @classmethod
    @torch.inference_mode()
    def of(
        cls, model: ZeroShotModel, classes: ClassTable, weight: DescriptionWeight, block: int, dtype: torch.dtype
    ) -> ClassVectors:
        model.eval()
        corrections = Corrections.of(model, classes, weight) if classes.pictures.names else None
        blocks = prototype_blocks(model, classes, corrections, block)
        if isinstance(model, ProductModel):
            table = torch.cat([model.class_vectors(prototypes).to(dtype) for prototypes in blocks])
        else:
            table = torch.cat(list(blocks))
        vectors = cls(model, classes, weight, block, dtype, table, corrections, None)
        return vectors.penalised(weight)

    def penalised(self, weight: DescriptionWeight) -> ClassVectors:
        """With the penalties of another weight; the vectors stay."""
        if self.corrections is None:
            return replace(self, weight=weight)
        penalties = torch.from_numpy(weight.penalties(self.corrections.shares)).to(self.table.device)
        return replace(self, weight=weight, penalties=penalties)

    @torch.inference_mode()
    def prototypes(self) -> Tensor:
        """[n_classes, d]"""
        if not isinstance(self.model, ProductModel):
            return self.table
        return torch.cat(list(prototype_blocks(self.model, self.classes, self.corrections, self.block)))

    @torch.inference_mode()
    def rows(self, features: Tensor) -> Tensor:
        """What the logits of rows [n, d_z] are computed from. It depends on the model alone, not on the classes."""
        return self.model.row_vectors(features) if isinstance(self.model, ProductModel) else features

    @torch.inference_mode()
    def logits(self, rows: Tensor, buffer: Tensor | None = None) -> Tensor:
        """The logits [n, n_classes] of rows that come from `rows`.

        Args:
            buffer: memory for the result, with at least n rows.
        """
        if not isinstance(self.model, ProductModel):
            logits = self.model.logits(rows, self.table).float()
        elif self.table.dtype == torch.float32:
            logits = torch.mm(rows, self.table.T, out=None if buffer is None else buffer[: len(rows)])
        else:
            logits = (rows.to(self.table.dtype) @ self.table.T).float()
        return logits if self.penalties is None else logits.sub_(self.penalties)

    @torch.inference_mode()
    def logits_for(self, rows: Tensor, prototypes: Tensor) -> Tensor:
        """The logits of rows that come from `rows`, for classes that are given by prototypes."""
        if isinstance(self.model, ProductModel):
            return rows @ self.model.class_vectors(prototypes).T
        return self.model.logits(rows, prototypes)

    def evidence(self) -> list[dict[str, Any]]:
        """What is known of each class with pictures: name, number of examples, number of unlabelled pictures that seem
        to be of the class, if there are any, and weight of the description."""
        if self.corrections is None:
            return []
        parts = (self.classes.examples, self.classes.unlabelled)
        labelled, unlabelled = (dict(zip(part.names, part.counts, strict=True)) for part in parts)
        return [
            {
                "name": name,
                "examples": int(labelled.get(name, 0)),
                **({"unlabelled": round(float(unlabelled.get(name, 0.0)), 1)} if unlabelled else {}),
                "weight": round(float(weight), 4),
            }
            for name, weight in zip(self.classes.pictures.names, self.corrections.description_weights, strict=True)
        ]


def prototype_blocks(
    model: ZeroShotModel, classes: ClassTable, corrections: Corrections | None, block: int
) -> Iterator[Tensor]:
    """Prototypes of some classes at a time: from the descriptors, and from the pictures of classes that have any."""
    n_classes = len(classes.names)
    for start in range(0, max(n_classes, 1), block):
        stop = min(start + block, n_classes)
        prototypes = model.prototypes(as_tensor(model, classes.descriptors[start:stop]))
        if corrections is not None:
            low, high = np.searchsorted(corrections.positions, [start, stop])
            positions = torch.from_numpy(corrections.positions[low:high] - start)
            prototypes[positions.to(prototypes.device)] = corrections.prototypes[low:high]
        yield prototypes


class Corrections(NamedTuple):
    """What pictures change about the classes that have any."""

    positions: Ints  # ascending
    prototypes: Tensor  # [len(positions), d]
    description_weights: Floats
    """τ / (τ + n) of the classes in `ClassTable.pictures`: the weights of their descriptions."""
    shares: Floats
    """The weights of labelled and of unlabelled pictures in the prototypes of unseen classes, [2, n_classes]."""

    @classmethod
    @torch.inference_mode()
    def of(cls, model: ZeroShotModel, classes: ClassTable, weight: DescriptionWeight) -> Corrections:
        space, pictures = model.example_space(), classes.pictures
        assert space is not None
        index = classes.positions(pictures.names)
        descriptors = classes.descriptors[index]
        prior = weight.in_pictures(variances(model, space, descriptors), classes.seen[index])
        described = np.array([name not in classes.undescribed for name in pictures.names], dtype=bool)
        weights = np.asarray(described * prior / (prior + pictures.counts))
        total, shares = np.zeros(len(classes.names)), np.zeros((2, len(classes.names)))
        total[index] = (1.0 - weights) / pictures.counts
        for share, part in zip(shares, (classes.examples, classes.unlabelled), strict=True):
            own = classes.positions(part.names)
            share[own] = np.where(classes.seen[own], 0.0, total[own] * part.counts)
        centers = space.center(model.prototypes(as_tensor(model, descriptors)))
        mixed = mixture(centers, pictures, weights, space.directions)
        order = np.argsort(index)
        prototypes = space.prototype(mixed)[torch.from_numpy(order).to(mixed.device)]
        return cls(index[order], prototypes, weights, shares)


def as_tensor(model: ZeroShotModel, array: Any) -> Tensor:
    """A float32 copy on the device of the model."""
    device = next(model.parameters()).device
    return torch.from_numpy(np.array(array, dtype=np.float32)).to(device)  # a copy: memory maps are read-only


def variances(model: ZeroShotModel, space: ExampleSpace | None, descriptors: npt.NDArray[np.float32]) -> Floats:
    """The variances [n_classes] of descriptions; 1 if the method does not tell them apart."""
    if space is None or space.variance is None or not len(descriptors):
        return np.ones(len(descriptors))
    with torch.inference_mode():
        return np.asarray(space.variance(as_tensor(model, descriptors)).double().cpu().numpy())


def mixture(centers: Tensor, examples: Examples, weights: Floats, directions: bool) -> Tensor:
    """Described centers [n, k] and pictures, averaged; of directions, in the length of the described centers."""
    described = centers.double().cpu()
    share = torch.from_numpy(weights)[:, None]
    means = torch.from_numpy(examples.sums / examples.counts[:, None])
    if not directions:
        return (share * described + (1.0 - share) * means).to(centers)
    lengths = described.norm(dim=1, keepdim=True)
    mixed = share * F.normalize(described, dim=1) + (1.0 - share) * means
    scaled: Tensor = lengths * F.normalize(mixed, dim=1)
    return scaled.to(centers)


@torch.inference_mode()
def summed(model: ZeroShotModel, rows: Features | RowView, labels: Sequence[str], block: int) -> Examples:
    """The examples that labelled rows are.

    Args:
        rows: [n, d_z], at least one.
        labels: [n], names of classes.
        block: rows read at a time.
    """
    model.eval()
    space = model.example_space()
    assert space is not None
    position = {name: i for i, name in enumerate(dict.fromkeys(labels))}
    index = np.array([position[label] for label in labels], dtype=np.int64)
    total: Tensor | None = None
    for part, array in row_blocks(rows, block):
        transformed = space.place(as_tensor(model, array)).cpu().double()
        total = transformed.new_zeros(len(position), transformed.shape[1]) if total is None else total
        total.index_add_(0, torch.from_numpy(index[part]), transformed)
    assert total is not None
    return Examples(tuple(position), np.bincount(index).astype(np.float64), total.numpy())


@torch.inference_mode()
def with_likely_descriptors(model: ZeroShotModel, classes: ClassTable) -> ClassTable:
    """Classes without a description get the mean descriptor of the described classes most like their pictures. It has
    no weight in their prototypes, except where a method scales them."""
    space = model.example_space()
    described = np.array([i for i, name in enumerate(classes.names) if name not in classes.undescribed])
    if space is None or not len(described):
        return classes
    examples = classes.examples.of(classes.undescribed)
    centers = space.center(model.prototypes(as_tensor(model, classes.descriptors[described])))
    means = torch.from_numpy(examples.sums / examples.counts[:, None]).float().to(centers.device)
    if space.directions:
        means, centers = F.normalize(means, dim=1), F.normalize(centers, dim=1)
    near = torch.cdist(means, centers).topk(min(_NEAREST, len(described)), largest=False).indices.cpu().numpy()
    descriptors = np.array(classes.descriptors)
    for c, nearest in zip(classes.positions(examples.names), near, strict=True):
        descriptors[c] = classes.descriptors[described[nearest]].mean(axis=0)
    return replace(classes, descriptors=descriptors)


_STEPS = 5
_SHARPNESS = 2.0  # of the assignments, against the probabilities of the scorer
_CACHE = 1 << 28  # bytes of transformed rows that are kept between the steps; more are computed in each
_SAMPLE = 4096  # rows that choose the penalty
_HALVINGS = 14  # of the range of the penalty
_LEAST = 1e-3  # pictures; less than that in a class has no effect

Blocks = Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]]
"""Blocks of rows: what logits are computed from (`ClassVectors.rows`), and the rows among the prototypes."""


def transformed(vectors: ClassVectors, rows: Features | RowView, block_bytes: int) -> Blocks:
    """Rows [n, d_z], kept in memory if they are few."""
    space = vectors.model.example_space()
    assert space is not None
    place = space.place
    d_z = rows.shape[1]
    size = max(1, block_bytes // (8 * max(d_z, len(vectors.classes.names))))

    @torch.inference_mode()
    def blocks() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _, array in row_blocks(rows, size):
            block = as_tensor(vectors.model, array)
            yield vectors.rows(block), place(block)

    if len(rows) * d_z * 8 > _CACHE:
        return blocks
    kept = list(blocks())
    return lambda: iter(kept)


def adapted(start: ClassVectors, calibration: Calibration, temperature: float, blocks: Blocks) -> ClassVectors:
    """The vectors after unlabelled rows, in addition to those that they were made from before."""
    classes, sample = start.classes, _sample(blocks)
    called_unseen = _called_unseen(*_best_seen_and_unseen(start, calibration, sample))
    current, log_shares = start, np.zeros(len(classes.names))
    for _ in range(_STEPS):
        counts, sums = _assigned(current, calibration, temperature, blocks, log_shares)
        # As many pictures again, spread evenly over the classes: a share is never zero.
        log_shares = np.log((counts + counts.mean()) / (2.0 * counts.sum()))
        some = counts > _LEAST
        names = tuple(name for name, has_any in zip(classes.names, some, strict=True) if has_any)
        unlabelled = classes.unlabelled.plus(Examples(names, counts[some], sums[some]))
        weight = replace(start.weight, unlabelled_penalty=0.0)
        moved = replace(classes, unlabelled=unlabelled)
        current = ClassVectors.of(start.model, moved, weight, start.block, start.dtype)
        if classes.seen.any() and not classes.seen.all():
            penalty = _penalty(current, calibration, sample, called_unseen)
            current = current.penalised(replace(weight, unlabelled_penalty=penalty))
    return current


@torch.inference_mode()
def _assigned(
    vectors: ClassVectors, calibration: Calibration, temperature: float, blocks: Blocks, log_shares: Floats
) -> tuple[Floats, Floats]:
    """Soft counts [n_classes] and sums [n_classes, k] of the rows."""
    seen = vectors.classes.seen
    counts, sums = np.zeros(len(seen)), None
    for block, rows in blocks():
        scores = calibration.apply(vectors.logits(block).cpu().numpy(), seen)
        shares = softmax(_SHARPNESS * scores / temperature + log_shares)
        part = (torch.from_numpy(shares.T).to(rows) @ rows).double().cpu()
        counts += shares.sum(axis=0)
        sums = part if sums is None else sums.add_(part)
    assert sums is not None
    return counts, np.asarray(sums.numpy())


def _sample(blocks: Blocks) -> torch.Tensor:
    """Evenly spaced rows, as logits need them."""
    n = sum(len(block) for block, _ in blocks())
    step, start, kept = -(-n // _SAMPLE), 0, []
    for block, _ in blocks():
        kept.append(block[-start % step :: step])
        start += len(block)
    return torch.cat(kept)


@torch.inference_mode()
def _best_seen_and_unseen(
    vectors: ClassVectors, calibration: Calibration, sample: torch.Tensor
) -> tuple[Floats, Floats]:
    """Calibrated scores of the best seen class [n] and of all unseen ones [n, n_unseen]."""
    seen = vectors.classes.seen
    scores = calibration.apply(vectors.logits(sample).cpu().numpy(), seen)
    return scores[:, seen].max(axis=1, initial=-np.inf), scores[:, ~seen]


def _called_unseen(best_seen: Floats, unseen: Floats) -> float:
    """The share of rows whose best class is unseen."""
    return float((unseen.max(axis=1, initial=-np.inf) > best_seen).mean())


def _penalty(vectors: ClassVectors, calibration: Calibration, sample: torch.Tensor, called_unseen: float) -> float:
    """The penalty of unlabelled pictures at which the given share of rows is called unseen."""
    assert vectors.corrections is not None
    best_seen, unseen = _best_seen_and_unseen(vectors, calibration, sample)
    weights = vectors.corrections.shares[1][~vectors.classes.seen]
    low, high = -(largest := float(np.abs(best_seen - unseen.max(axis=1)).max())), largest
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        too_many = _called_unseen(best_seen, unseen - middle * weights) > called_unseen
        low, high = (middle, high) if too_many else (low, middle)
    return (low + high) / 2.0
