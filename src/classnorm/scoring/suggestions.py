r"""What next: which pictures to label and which classes to describe better.

The prototype of a class with n labelled pictures has the variance 1 / (τ + n), in units of the variance inside classes,
where τ is what its description is worth in pictures (`scoring.class_vectors`). What is at stake are the unlabelled
pictures that may or may not be of the class, :math:`m_c = \sum_x p_c(x)(1 - p_c(x))`. So the uncertainty is

.. math:: \sum_c m_c / (\tau_c + n_c),

and labelling x removes :math:`\sum_c p_c(x)\, m_c / ((\tau_c + n_c)(\tau_c + n_c + 1))` of it. This times the density
at x ranks the pictures: an odd one says little about its class. So the choice falls on typical pictures of uncertain
classes, not on the most uncertain pictures. They are chosen one by one, each as if those before had been labelled,
which spreads them over classes. Gains are percentages of the uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from classnorm.data.checks import check_features
from classnorm.data.row_store import RowStore, RowView, row_blocks
from classnorm.errors import ConfigError, DataError
from classnorm.methods import ZeroShotModel
from classnorm.scoring.class_vectors import as_tensor, variances
from classnorm.scoring.classes import ClassTable
from classnorm.scoring.explanation import columns_by_name

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Rows, Scorer

Floats = npt.NDArray[np.float64]

_CANDIDATES = 10  # classes that a picture may be of
_NEAREST = 10  # pictures that determine the density at one
_COMPARED = 4096  # pictures among which the nearest are looked for
_SAME = 0.98  # cosine from which two pictures show the same
_BLOCK = 1 << 14
_ATTRIBUTES = 5


def suggest(scorer: Scorer, features: Rows, count: int = 20, classes: int = 5) -> dict[str, list[dict[str, Any]]]:
    """The pictures to label next and the classes to describe better, best first.

    Args:
        features: [n, d_z], unlabelled.

    Returns:
        ``pictures``, `count` of them, each with ``row``, ``class`` (the likeliest) and its ``probability``, ``reason``
        and ``gain``. ``classes``, each with ``class``, ``kind``, ``confused_with``, ``pictures`` (how many are at
        stake), ``attributes`` that would tell the two apart, ``reason`` and ``gain``. An attribute has ``name``,
        ``value``, ``value_against`` and ``effect``, the change of the prototypes' cosine if its value were a standard
        deviation higher or lower (``direction``).
    """
    if count < 1 or classes < 0:
        raise ConfigError("`count` must be at least 1")
    rows = features if isinstance(features, RowStore | RowView) else np.asanyarray(features)
    if not len(rows):
        raise DataError("there are no unlabelled pictures to choose from")
    pool = _Pool.of(scorer, rows if isinstance(rows, RowView) else check_features(rows, "features"))
    columns = columns_by_name(scorer.d_a, scorer.attribute_names)
    attributes = {name: group[0] for name, group in columns.items() if len(group) == 1}
    return {
        "pictures": _pictures(scorer.class_names, pool, count),
        "classes": _classes(scorer.model, scorer.classes, attributes, pool, classes),
    }


@dataclass(frozen=True)
class _Pool:
    """Unlabelled pictures."""

    candidates: npt.NDArray[np.int64]  # [n, k], the likeliest classes, best first
    probabilities: Floats  # [n, k]
    transformed: npt.NDArray[np.float32]  # [n, d], unit length
    density: Floats  # [n]
    at_stake: Floats  # [n_classes], expected pictures that may be mistaken for or from the class
    pictures: Floats  # [n_classes], that the description and the examples of the class are worth

    @classmethod
    def of(cls, scorer: Scorer, features: Any) -> _Pool:
        ranking = scorer.top(features, _CANDIDATES)
        p = ranking.probabilities
        at_stake = np.zeros(len(scorer.class_names))
        np.add.at(at_stake, ranking.indices, p * (1.0 - p))
        transformed = _transformed(scorer, features)
        return cls(ranking.indices, p, transformed, _density(transformed), at_stake, _evidence(scorer))

    @property
    def uncertainty(self) -> float:
        """The whole, of which gains are percentages."""
        return max(float((self.at_stake / self.pictures).sum()), 1e-12)


@torch.inference_mode()
def _transformed(scorer: Scorer, features: Any) -> npt.NDArray[np.float32]:
    """Where examples are averaged; the features themselves if the method has no such space."""
    space = scorer.model.example_space()
    blocks = []
    for _, block in row_blocks(features, _BLOCK):
        rows = as_tensor(scorer.model, block)
        blocks.append(F.normalize(rows if space is None else space.place(rows), dim=1).float().cpu().numpy())
    return np.concatenate(blocks)


def _density(transformed: npt.NDArray[np.float32]) -> Floats:
    """The mean cosine with the nearest other pictures, 1 on average."""
    some = np.arange(0, len(transformed), -(-len(transformed) // _COMPARED))
    k = min(_NEAREST, len(some) - 1)
    if k < 1:
        return np.ones(len(transformed))
    result = np.empty(len(transformed))
    for part, block in row_blocks(transformed, 1024):
        cosines = block @ transformed[some].T
        cosines[some[None] == np.arange(part.start, part.start + len(block))[:, None]] = -1.0  # itself
        result[part] = np.partition(cosines, -k, axis=1)[:, -k:].mean(axis=1)
    result = np.maximum(result, 1e-3)
    return np.asarray(result / result.mean())


def _evidence(scorer: Scorer) -> Floats:
    """τ + n of each class."""
    classes = scorer.classes
    table = variances(scorer.model, scorer.model.example_space(), classes.descriptors)
    pictures = scorer.description_weight.in_pictures(table, classes.seen)
    pictures[classes.positions(classes.undescribed)] = 0.0  # known by their examples alone
    pictures[classes.positions(classes.examples.names)] += classes.examples.counts
    return np.maximum(pictures, 1.0)


def _pictures(names: Sequence[str], pool: _Pool, count: int) -> list[dict[str, Any]]:
    evidence, free = pool.pictures.copy(), np.ones(len(pool.density), dtype=bool)
    chosen: list[dict[str, Any]] = []
    while len(chosen) < count and free.any():
        value = pool.at_stake / (evidence * (evidence + 1.0))
        gains = pool.density * (pool.probabilities * value[pool.candidates]).sum(axis=1)
        row = int(np.where(free, gains, -1.0).argmax())
        classes, p = pool.candidates[row], pool.probabilities[row]
        chosen.append(
            {
                "row": row,
                "class": names[classes[0]],
                "probability": round(float(p[0]), 4),
                "reason": _reason(names, pool, classes, p),
                "gain": round(100.0 * float(gains[row]) / pool.uncertainty, 4),
            }
        )
        evidence[classes] += p
        free[row] = False
        free &= pool.transformed @ pool.transformed[row] < _SAME
    return chosen


def _reason(names: Sequence[str], pool: _Pool, classes: npt.NDArray[np.int64], p: Floats) -> str:
    likely = [f"{names[c]} ({share:.0%})" for c, share in zip(classes[:2], p[:2], strict=True)]
    best = classes[0]
    stake = f"{pool.at_stake[best]:.1f} pictures at stake, evidence worth {pool.pictures[best]:.1f}"
    return f"{' or '.join(likely)}; {names[best]}: {stake}"


class _Pair(NamedTuple):
    """A class and the one that it is confused with most."""

    of: int
    against: int


def _classes(
    model: ZeroShotModel, table: ClassTable, attributes: Mapping[str, int], pool: _Pool, count: int
) -> list[dict[str, Any]]:
    uncertain = np.array(pool.at_stake / pool.pictures)
    uncertain[table.positions(table.undescribed)] = 0.0
    documents = []
    for c in np.argsort(-uncertain, kind="stable")[:count]:
        if uncertain[c] <= 0.0 or len(table.names) < 2:
            break
        pair = _Pair(int(c), _most_confused(pool, int(c), len(table.names)))
        telling = _telling_apart(model, table, attributes, pair)
        name, other = table.names[c], table.names[pair.against]
        check = f"; check {', '.join(entry['name'] for entry in telling[:3])}" if telling else ""
        documents.append(
            {
                "class": name,
                "kind": table.kinds[c],
                "confused_with": other,
                "pictures": round(float(pool.at_stake[c]), 1),
                "attributes": telling,
                "reason": f"{pool.at_stake[c]:.1f} pictures at stake, most between {name} and {other}{check}",
                "gain": round(100.0 * float(uncertain[c]) / pool.uncertainty, 4),
            }
        )
    return documents


def _most_confused(pool: _Pool, c: int, n_classes: int) -> int:
    """The class with the largest sum of products of probabilities."""
    own = np.where(pool.candidates == c, pool.probabilities, 0.0).sum(axis=1)
    shared = np.bincount(pool.candidates.ravel(), (own[:, None] * pool.probabilities).ravel(), minlength=n_classes)
    shared[c] = -1.0
    return int(shared.argmax())


@torch.inference_mode()
def _telling_apart(
    model: ZeroShotModel, table: ClassTable, attributes: Mapping[str, int], pair: _Pair
) -> list[dict[str, Any]]:
    """The attributes of a class whose change by a standard deviation would lower the cosine of the two prototypes most.

    Dimensions of a text mean nothing one by one and are left out.

    Args:
        attributes: name → column of the descriptors.
    """
    if not attributes:
        return []
    index = np.array(list(attributes.values()))
    steps = table.descriptors.std(axis=0)[index]
    moved = np.repeat(table.descriptors[[pair.of]], 2 * len(index), axis=0)
    moved[np.arange(len(index)), index] += steps
    moved[len(index) + np.arange(len(index)), index] -= steps
    both = table.descriptors[[pair.of, pair.against]]
    prototypes = F.normalize(model.prototypes(as_tensor(model, np.concatenate([both, moved]))), dim=1)
    cosines = (prototypes @ prototypes[1]).double().cpu().numpy()
    change = cosines[2:].reshape(2, -1) - cosines[0]
    up = change[0] <= change[1]
    effect = np.minimum(*change)
    order = np.argsort(effect, kind="stable")[:_ATTRIBUTES]
    names = list(attributes)
    return [
        {
            "name": names[i],
            "value": float(both[0, index[i]]),
            "value_against": float(both[1, index[i]]),
            "direction": "higher" if up[i] else "lower",
            "effect": round(float(effect[i]), 6),
        }
        for i in order
        if effect[i] < 0.0
    ]
