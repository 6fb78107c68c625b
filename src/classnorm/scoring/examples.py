"""A few pictures of a class: prototypes between description and pictures.

In the space of a method where rows and prototypes can be averaged (`ExampleSpace`), the prototype of a class with n
pictures is

    (τ · described prototype + sum of the pictures) / (τ + n),

the posterior mean if both are normal. τ says how many pictures a description is worth. A scorer keeps counts and sums
in float64, so neither the order of the pictures nor how they are divided among calls matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from classnorm.data.descriptions import respelled
from classnorm.data.row_store import Features, RowView, row_blocks
from classnorm.errors import ConfigError, DataError
from classnorm.methods.model import ExampleSpace

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer

_NEAREST = 3  # classes whose descriptors stand in for that of a class without one
_PICTURES = 4.0  # a description is worth that many, if validation has not told
_GAUSSIAN_PROCESS = 0.28  # the same times the variance of the description, where the method knows it
_TRAINING_ROWS = 50.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trust:
    """How far descriptions are trusted against pictures, chosen on validation splits."""

    description: float
    """τ of a class times the variance of its description (`ExampleSpace.variance`, or 1)."""
    penalty: float
    """Subtracted from the scores of an unseen class that is known by pictures alone; from others in proportion to the
    weight of the pictures. The calibration favours unseen classes because descriptions fit worse than pictures."""
    training_rows: float
    """Added to τ of seen classes: their prototypes have learnt from this many pictures each."""
    unlabelled_penalty: float = 0.0
    """Like `penalty`, for unlabelled pictures, which choose it themselves."""
    unlabelled_gain: float | None = None
    """Points of H that unlabelled pictures gained on validation splits; None if that is not known."""

    @classmethod
    def default(cls, scorer: Scorer) -> Trust:
        """For models whose validation did not choose it."""
        calibration, space = scorer.calibration, scorer.model.example_space()
        description = _PICTURES if space is None or space.variance is None else _GAUSSIAN_PROCESS
        penalty = max(0.0, calibration.value) if calibration.kind == "bias" else 0.0
        return cls(description, penalty, _TRAINING_ROWS)

    def as_dict(self) -> dict[str, float]:
        """For the document of a saved model."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def read(cls, document: dict[str, float]) -> Trust:
        trust = cls(**document)
        if min(trust.description, trust.training_rows) < 0.0:
            raise ValueError("trust in descriptions must not be negative")
        return trust

    def pictures(self, variances: Floats, seen: npt.NDArray[np.bool_]) -> Floats:
        """τ of each class, [n_classes]."""
        return np.asarray(self.description / np.maximum(variances, 1e-12) + self.training_rows * seen)


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


def space_of(scorer: Scorer) -> ExampleSpace:
    """Where the scorer averages pictures and prototypes."""
    space = scorer.model.example_space()
    if space is None:
        raise ConfigError(
            f"{scorer.method} with these settings cannot learn from single pictures: its prototypes are no points "
            "among the features; use kernel, classnorm, dem, cvc, sae or epgn"
        )
    return space


def add_examples(scorer: Scorer, rows: Features | RowView, labels: Sequence[str], where: str) -> Scorer:
    """The scorer with more pictures; see `Scorer.add_examples`."""
    if len(rows) != len(labels):
        raise DataError(f"{where}: {len(rows)} rows of features, but {len(labels)} labels")
    wrong = next((label for label in labels if not isinstance(label, str) or not label), None)
    if wrong is not None:
        raise DataError(f"{where}: labels must be class names, not {wrong!r}")
    space = space_of(scorer)
    if not len(rows):
        return scorer
    names, index = _distinct(respelled(labels, scorer.class_names))
    known = set(scorer.class_names)
    new = [name for name in names if name not in known]
    examples = scorer.examples.plus(_summed(scorer, space, rows, names, index))
    scorer = replace(
        scorer,
        examples=examples,
        class_names=(*scorer.class_names, *new),
        descriptors=np.concatenate([scorer.descriptors, np.zeros((len(new), scorer.d_a), dtype=np.float32)]),
        seen=np.concatenate([scorer.seen, np.zeros(len(new), dtype=bool)]),
        undescribed=scorer.undescribed | frozenset(new),
    )
    return _with_likely_descriptors(scorer, space) if scorer.undescribed.intersection(names) else scorer


def _distinct(labels: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The different labels in order of appearance, and the position of each label among them."""
    position = {name: i for i, name in enumerate(dict.fromkeys(labels))}
    return list(position), np.array([position[label] for label in labels], dtype=np.int64)


@torch.inference_mode()
def _summed(
    scorer: Scorer,
    space: ExampleSpace,
    rows: Features | RowView,
    names: Sequence[str],
    index: npt.NDArray[np.int64],
) -> Examples:
    scorer.model.eval()
    size = max(1, scorer.block_bytes // (8 * scorer.d_z))
    total: torch.Tensor | None = None
    for part, block in row_blocks(rows, size):
        placed = space.place(scorer.as_tensor(block)).cpu().double()
        total = placed.new_zeros(len(names), placed.shape[1]) if total is None else total
        total.index_add_(0, torch.from_numpy(index[part]), placed)
    assert total is not None
    return Examples(tuple(names), np.bincount(index, minlength=len(names)).astype(np.float64), total.numpy())


@torch.inference_mode()
def _with_likely_descriptors(scorer: Scorer, space: ExampleSpace) -> Scorer:
    """Classes without a description get the mean descriptor of the described classes most like their pictures. It has
    no weight in their prototypes, except where a method scales them."""
    described = [i for i, name in enumerate(scorer.class_names) if name not in scorer.undescribed]
    if not described:
        return scorer
    position = {name: i for i, name in enumerate(scorer.class_names)}
    examples = scorer.examples.of(scorer.undescribed)
    means = torch.from_numpy(examples.sums / examples.counts[:, None]).float().to(scorer.device)
    centers = space.center(scorer.model.prototypes(scorer.as_tensor(scorer.descriptors[described])))
    if space.directions:
        means, centers = F.normalize(means, dim=1), F.normalize(centers, dim=1)
    near = torch.cdist(means, centers).topk(min(_NEAREST, len(described)), largest=False).indices.cpu().numpy()
    descriptors = np.array(scorer.descriptors)
    for name, classes in zip(examples.names, near, strict=True):
        descriptors[position[name]] = scorer.descriptors[np.array(described)[classes]].mean(axis=0)
    return replace(scorer, descriptors=descriptors)


def variances(scorer: Scorer, index: npt.NDArray[np.int64]) -> Floats:
    """The variances of the descriptions of some classes; 1 if the method does not tell them apart."""
    variance = space_of(scorer).variance
    if variance is None or not len(index):
        return np.ones(len(index))
    with torch.inference_mode():
        return np.asarray(variance(scorer.as_tensor(scorer.descriptors[index])).double().cpu().numpy())


def description_weights(scorer: Scorer) -> Floats:
    """τ / (τ + n) of the classes that have pictures: the weight of their descriptions."""
    examples, trust = scorer.pictures, scorer.trust or Trust.default(scorer)
    index = _positions(scorer, examples)
    pictures = trust.pictures(variances(scorer, index), scorer.seen[index])
    described = np.array([name not in scorer.undescribed for name in examples.names], dtype=bool)
    return np.asarray(described * pictures / (pictures + examples.counts))


def _positions(scorer: Scorer, examples: Examples) -> npt.NDArray[np.int64]:
    position = {name: i for i, name in enumerate(scorer.class_names)}
    return np.array([position[name] for name in examples.names], dtype=np.int64)


@torch.inference_mode()
def corrected(scorer: Scorer) -> tuple[npt.NDArray[np.int64], torch.Tensor]:
    """The positions of the classes with pictures, ascending, and their prototypes."""
    scorer.model.eval()
    space, examples = space_of(scorer), scorer.pictures
    index = _positions(scorer, examples)
    centers = space.center(scorer.model.prototypes(scorer.as_tensor(scorer.descriptors[index])))
    mixed = mixture(centers, examples, scorer.description_weights, space.directions)
    order = np.argsort(index)
    return index[order], space.prototype(mixed)[torch.from_numpy(order).to(mixed.device)]


def mixture(centers: torch.Tensor, examples: Examples, weights: Floats, directions: bool) -> torch.Tensor:
    """Described centers [n, k] and pictures, averaged; of directions, in the length of the described centers."""
    described = centers.double().cpu()
    share = torch.from_numpy(weights)[:, None]
    means = torch.from_numpy(examples.sums / examples.counts[:, None])
    if not directions:
        return (share * described + (1.0 - share) * means).to(centers)
    lengths = described.norm(dim=1, keepdim=True)
    mixed = share * F.normalize(described, dim=1) + (1.0 - share) * means
    scaled: torch.Tensor = lengths * F.normalize(mixed, dim=1)
    return scaled.to(centers)


def picture_shares(scorer: Scorer) -> tuple[Floats, Floats]:
    """The weights of labelled and of unlabelled pictures in the prototypes of unseen classes, [n_classes] each."""
    both = scorer.pictures
    total, shares = np.zeros(len(scorer.class_names)), np.zeros((2, len(scorer.class_names)))
    index = _positions(scorer, both)
    total[index] = (1.0 - scorer.description_weights) / both.counts
    for share, part in zip(shares, (scorer.examples, scorer.unlabelled), strict=True):
        own = _positions(scorer, part)
        share[own] = np.where(scorer.seen[own], 0.0, total[own] * part.counts)
    return shares[0], shares[1]


def penalties(scorer: Scorer) -> npt.NDArray[np.float32]:
    """What is subtracted from the scores, [n_classes]; see `Trust.penalty`."""
    trust, (labelled, unlabelled) = scorer.trust or Trust.default(scorer), picture_shares(scorer)
    return (trust.penalty * labelled + trust.unlabelled_penalty * unlabelled).astype(np.float32)


def evidence(scorer: Scorer) -> list[dict[str, Any]]:
    """What is known of each class with pictures: name, number of examples, number of unlabelled pictures that seem to
    be of the class, if there are any, and weight of the description."""
    labelled, unlabelled = (
        dict(zip(part.names, part.counts, strict=True)) for part in (scorer.examples, scorer.unlabelled)
    )
    return [
        {
            "name": name,
            "examples": int(labelled.get(name, 0)),
            **({"unlabelled": round(float(unlabelled.get(name, 0.0)), 1)} if unlabelled else {}),
            "weight": round(float(weight), 4),
        }
        for name, weight in zip(scorer.pictures.names, scorer.description_weights, strict=True)
    ]
