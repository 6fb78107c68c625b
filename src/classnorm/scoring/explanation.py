"""Why a class and not another: the difference of their scores, attribute by attribute.

The score of a class is a function g of its descriptor. On the straight line from the descriptor b of the second class
to a of the first, attribute j changes the score by φ_j = (a_j − b_j) ∫ ∂g/∂a_j (b + t (a − b)) dt. These add up to
g(a) − g(b): integrated gradients (Sundararajan, Taly & Yan, ICML 2017). If g is linear between the two, the gradient is
constant and φ_j = w_j (a_j − b_j) exactly. Otherwise the line is cut into pieces, each of which is halved until its
Gauss–Legendre sum agrees with the difference of the scores at its ends: where a ReLU switches, pieces become short. An
attribute that both classes have to the same degree cannot tell them apart: it contributes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data.row_store import Features, RowView, row_blocks
from classnorm.errors import ConfigError, unknown_name
from classnorm.methods import ZeroShotModel
from classnorm.metrics import Calibration
from classnorm.scoring.answers import Top
from classnorm.scoring.class_vectors import as_tensor
from classnorm.scoring.classes import ClassTable

OTHERS, CALIBRATION, EXAMPLES = "other attributes", "calibration", "examples"
"""Entries of what is not shown one by one, and of what the calibration and examples of the classes add."""

_NODES = 8  # Gauss–Legendre points of a piece of the line
_HALVINGS = 14  # after that many, the score jumps
_TOLERANCE = 1e-3  # error of a piece, as a share of the magnitudes of its contributions
_FLOOR = 1e-4  # error of a piece, as a share of the whole: scores are in float32
_ROUNDING = 1e-5  # of gradients in float32
_NEIGHBOURS = 5
_SIMILAR = 5  # classes named
_BLOCK = 256  # rows read at a time, and wrong rows of a class that are looked at

Floats = npt.NDArray[np.float64]

_POINTS, _POINT_WEIGHTS = np.polynomial.legendre.leggauss(_NODES)
_PLACES, _WEIGHTS = (_POINTS + 1) / 2, _POINT_WEIGHTS / 2  # of the integral from 0 to 1


class Pair(NamedTuple):
    """The two best classes of a row, as positions, and the difference of their calibrated scores."""

    first: int
    second: int
    difference: float


@dataclass(frozen=True, eq=False)
class Explainer:
    """What explanations are made from."""

    model: ZeroShotModel
    classes: ClassTable
    calibration: Calibration
    attribute_names: tuple[str, ...] | None

    def explain(self, rows: Features | RowView, best: Top, top: int) -> list[dict[str, Any]]:
        """The explanation of each row, in the form that `Scorer.explain` documents.

        Args:
            best: the two best classes of each row.
            top: attributes to name.
        """
        explanations = []
        for row, pair in self.pairs(rows, best, top):
            ends = self.tensor(self.classes.descriptors[[pair.second, pair.first]])
            contributions, by = integrated_gradients(self.model, row, *ends)
            contributions, calibration = self.calibrated(row, pair, contributions)
            shown = self._shown(contributions, pair, top)
            explanations.append(self.document(pair, by, [*shown, *calibration]))
        return self.with_neighbours(explanations)

    def of_class(self, name: str, prototypes: npt.NDArray[np.float32], top: int) -> dict[str, Any]:
        """The explanation of a class, in the form that `Scorer.explain_class` documents."""
        if top < 1:
            raise ConfigError(f"`top` is {top}; it must be at least 1")
        if name not in self.classes.position:
            raise unknown_name("class", name, self.classes.names)
        c = self.classes.position[name]
        return {
            "class": name,
            "kind": self.classes.kinds[c],
            "attributes": self._weights(c)[:top],
            "similar": self._similar(c, prototypes),
            **self.neighbours([c])[c],
        }

    def pairs(self, rows: Features | RowView, best: Top, top: int) -> Iterator[tuple[Tensor, Pair]]:
        """Each row [1, d_z] with its two best classes."""
        if top < 1:
            raise ConfigError(f"`top` is {top}; it must be at least 1")
        if len(self.classes.names) < 2:
            raise ConfigError("an explanation compares two classes; the model has only one")
        features = (row for _, block in row_blocks(rows, _BLOCK) for row in block)
        for row, (first, second), scores in zip(features, best.indices, best.scores, strict=True):
            yield self.tensor(row[None]), Pair(int(first), int(second), float(scores[0] - scores[1]))

    def document(self, pair: Pair, by: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "class": self.classes.names[pair.first],
            "against": self.classes.names[pair.second],
            "difference": pair.difference,
            "by": by,
            "attributes": entries,
        }

    def calibrated(self, row: Tensor, pair: Pair, contributions: Floats) -> tuple[Floats, list[dict[str, Any]]]:
        """Contributions to the calibrated scores, and entries for what descriptions do not decide.

        If both classes are seen, or both unseen, the calibration multiplies their scores, and with them the
        contributions, by the same factor. Otherwise it is an entry. So are examples, which move prototypes away from
        the descriptions.
        """
        classes = [pair.first, pair.second]
        described, entries = pair.difference, []
        if self.classes.pictures.names:
            logits = scores_of(self.model, row, self.tensor(self.classes.descriptors[classes]))
            scores = self.calibration.apply(logits, self.classes.seen[classes])
            described = float(scores[0] - scores[1])
            entries = [{"name": EXAMPLES, "contribution": pair.difference - described}]
        factors, _ = self.calibration.factors_and_shifts(self.classes.seen[classes])
        if self.calibration.kind == "none" or self.classes.seen[pair.first] == self.classes.seen[pair.second]:
            return _adding_up(float(factors[0]) * contributions, described), entries
        return contributions, [{"name": CALIBRATION, "contribution": described - float(contributions.sum())}, *entries]

    def _shown(self, contributions: Floats, pair: Pair, top: int) -> list[dict[str, Any]]:
        """The largest contributions by name, and the sum of the others. Columns of the same name are one attribute."""
        groups = self.columns
        sums = {name: float(contributions[columns].sum()) for name, columns in groups.items()}
        order = sorted(sums, key=lambda name: -abs(sums[name]))
        shown: list[dict[str, Any]] = [{"name": name, "contribution": sums[name]} for name in order[:top] if sums[name]]
        for entry in shown:
            if len(columns := groups[entry["name"]]) == 1:
                value, other = self.classes.descriptors[[pair.first, pair.second], columns[0]]
                entry |= {"value": float(value), "value_against": float(other)}
        rest = sum(sums[name] for name in order[top:])
        return [*shown, *([{"name": OTHERS, "contribution": rest}] if rest else [])]

    @cached_property
    def columns(self) -> dict[str, list[int]]:
        """The columns of the descriptors by the name of their attribute."""
        return columns_by_name(self.classes.d_a, self.attribute_names)

    def with_neighbours(self, explanations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The explanations, each with the training classes that the prototype of its class leans on."""
        positions = [self.classes.position[explanation["class"]] for explanation in explanations]
        found = self.neighbours(sorted(set(positions)))
        return [explanation | found[c] for explanation, c in zip(explanations, positions, strict=True)]

    @torch.inference_mode()
    def neighbours(self, classes: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The training classes that the prototypes of these classes lean on."""
        if not classes:
            return {}
        seen = np.flatnonzero(self.classes.seen)
        chosen, known = (self.tensor(self.classes.descriptors[index]) for index in (list(classes), seen))
        weights, by = self.model.class_weights(chosen, known), "weights of the class means"
        if weights is None:
            weights = F.normalize(self.model.prototypes(chosen)) @ F.normalize(self.model.prototypes(known)).T
            by = "cosine of the prototypes"
        result = {}
        for c, row in zip(classes, weights.double().cpu().numpy(), strict=True):
            order = np.argsort(-np.abs(row), kind="stable")
            others = [i for i in order[: _NEIGHBOURS + 1] if seen[i] != c][:_NEIGHBOURS]
            result[c] = {
                "neighbours": [{"class": self.classes.names[seen[i]], "weight": float(row[i])} for i in others],
                "neighbours_by": by,
            }
        return result

    @torch.inference_mode()
    def _weights(self, c: int) -> list[dict[str, Any]]:
        """How far the prototype moves if an attribute is set to its mean over all classes, relative to its length."""
        groups = self.columns
        means = self.classes.descriptors.mean(axis=0)
        without = np.repeat(self.classes.descriptors[[c]], len(groups) + 1, axis=0)  # the last row stays as it is
        for row, columns in enumerate(groups.values()):
            without[row, columns] = means[columns]
        prototypes = self.model.prototypes(self.tensor(without)).double().cpu().numpy()
        moved = np.linalg.norm(prototypes[:-1] - prototypes[-1], axis=1) / max(np.linalg.norm(prototypes[-1]), 1e-12)
        entries: list[dict[str, Any]] = []
        for (name, columns), weight in zip(groups.items(), moved.tolist(), strict=True):
            values = (
                {"value": self.classes.descriptors[c, columns[0]], "mean": means[columns[0]]}
                if len(columns) == 1
                else {}
            )
            entries.append({"name": name, "weight": weight, **{key: float(value) for key, value in values.items()}})
        return sorted(entries, key=lambda entry: -entry["weight"])

    def _similar(self, c: int, prototypes: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
        """The classes with the most similar prototypes: the likeliest confusions."""
        table = prototypes.astype(np.float64)
        lengths = np.maximum(np.linalg.norm(table, axis=1), 1e-12)
        cosines = table @ table[c] / (lengths * lengths[c])
        order = [i for i in np.argsort(-cosines, kind="stable")[: _SIMILAR + 1] if i != c][:_SIMILAR]
        return [{"class": self.classes.names[i], "cosine": float(cosines[i])} for i in order]

    def mistakes(
        self, name: str, rows: Features | RowView, best: Top, scores: Callable[[Any], Floats], top: int
    ) -> dict[str, Any]:
        """What the rows of a class are taken for, and the attributes whose change would set them right.

        Args:
            best: the best class of each row.
            scores: of rows, [n, d_z] → [n, n_classes].
        """
        c = self.classes.position[name]
        wrong = np.flatnonzero(best.indices[:, 0] != c)
        counts = Counter(self.classes.names[i] for i in best.indices[wrong, 0])
        document = {
            "rows": len(best.indices),
            "right": len(best.indices) - len(wrong),
            "mistaken_for": [{"class": other, "rows": count} for other, count in counts.most_common(_SIMILAR)],
        }
        if not len(wrong):
            return document | {"short_by": 0.0, "needs": []}
        looked = set(wrong[:_BLOCK].tolist())
        numbered = ((i, row) for part, block in row_blocks(rows, _BLOCK) for i, row in enumerate(block, part.start))
        rows_of_class = np.stack([row for i, row in numbered if i in looked])
        table = scores(rows_of_class)
        return document | {
            "short_by": float((table.max(axis=1) - table[:, c]).mean()),
            "needs": self._needs(c, rows_of_class)[:top],
        }

    @torch.inference_mode()
    def _needs(self, c: int, features: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
        """The attributes by how much the score of a class rises on average, if the value changes by its standard
        deviation between classes, up or down."""
        single = {name: columns[0] for name, columns in self.columns.items() if len(columns) == 1}
        deviations = self.classes.descriptors.std(axis=0)
        changes = np.array([sign * deviations[column] for column in single.values() for sign in (1, -1)])
        table = np.repeat(self.classes.descriptors[[c]], len(changes) + 1, axis=0)  # the last row stays as it is
        table[np.arange(len(changes)), np.repeat(list(single.values()), 2)] += changes
        logits = self.model.logits(self.tensor(features), self.model.prototypes(self.tensor(table)))
        factor = self.calibration.factors_and_shifts(self.classes.seen[[c]])[0][0]
        mean = factor * logits.double().mean(dim=0).cpu().numpy()
        gains = (mean[:-1] - mean[-1]).reshape(-1, 2)
        needs: list[dict[str, Any]] = []
        for i, (name, column) in enumerate(single.items()):
            best = int(gains[i].argmax())
            if gains[i, best] > 0:
                value, change = float(self.classes.descriptors[c, column]), float(changes[2 * i + best])
                needs.append({"name": name, "value": value, "change": change, "gain": float(gains[i, best])})
        return sorted(needs, key=lambda entry: -entry["gain"])

    def tensor(self, array: Any) -> Tensor:
        return as_tensor(self.model, array)


def columns_by_name(d_a: int, attribute_names: Sequence[str] | None) -> dict[str, list[int]]:
    """The columns of the descriptors by the name of their attribute, by default `attribute 0`, `attribute 1`, …"""
    groups: dict[str, list[int]] = {}
    for column, name in enumerate(attribute_names or [f"attribute {i}" for i in range(d_a)]):
        groups.setdefault(name, []).append(column)
    return groups


def integrated_gradients(model: ZeroShotModel, row: Tensor, start: Tensor, end: Tensor) -> tuple[Floats, str]:
    """Contributions of the attributes [d_a] to the score of `end` minus that of `start`, and how they were computed.

    Args:
        row: [1, d_z]
        start, end: descriptors [d_a].
    """
    model.eval()
    with torch.inference_mode(False), torch.enable_grad():
        row, start, end = row.clone(), start.clone(), end.clone()  # autograd may not use inference tensors
        change = (end.double() - start.double()).cpu().numpy()
        scores = scores_of(model, row, torch.stack([start, end]))
        lefts, contributions, is_constant = np.zeros(1), np.zeros(len(change)), True
        for halvings in range(_HALVINGS):
            width = 0.5**halvings
            places = lefts[:, None] + width * _PLACES  # [n, _NODES]
            gradients = _gradients(model, row, start, end, places)
            gradients[:, :, change == 0] = 0.0  # may be infinite, for instance that of a root at 0
            is_constant = is_constant and _is_constant(gradients)
            speeds = 30 * (places * (1 - places)) ** 2  # of `_eased`
            parts = change * np.einsum("nkd,nk->nd", gradients, width * _WEIGHTS * speeds)
            ends = scores_of(model, row, _between(start, end, np.stack([lefts, lefts + width]))).reshape(2, -1)
            sizes = np.abs(parts).sum(axis=1)
            if halvings == 0:
                size = float(sizes[0])
                floor = _FLOOR * (size + float(np.abs(scores).max()))
            errors = np.abs(parts.sum(axis=1) - (ends[1] - ends[0]))
            agrees = errors <= floor + _TOLERANCE * np.maximum(sizes, width * size)
            contributions += parts[agrees].sum(axis=0)
            lefts = (lefts[~agrees][:, None] + [0.0, width / 2]).ravel()
            if not len(lefts):
                by = "exact" if is_constant else "integrated gradients"
                return _adding_up(contributions, scores[1] - scores[0]), by
    raise ConfigError(
        "the scores of this method jump between the two descriptors, so that no attribute can be given its share; "
        "explain a model of another method, such as kernel or classnorm"
    )


def _gradients(model: ZeroShotModel, row: Tensor, start: Tensor, end: Tensor, places: Floats) -> Floats:
    """Gradients of the score at these places of the line, [n, k] → [n, k, d_a]."""
    points = _between(start, end, places)
    return np.array(slopes(model, row, points).double().cpu().numpy()).reshape(*places.shape, -1)


def _between(start: Tensor, end: Tensor, places: Floats) -> Tensor:
    """Points of the line at `_eased` places from 0 to 1. Both shares are exact, so that points close to an end differ
    from it."""
    shares = [torch.from_numpy(_eased(part.ravel())).to(start.device)[:, None] for part in (1 - places, places)]
    return (shares[0] * start.double() + shares[1] * end.double()).to(start.dtype)


def _eased(places: Floats) -> Floats:
    """Slow at the ends, where a gradient may be infinite: the root of an attribute that one of the classes lacks."""
    return np.asarray(places**3 * (10 - 15 * places + 6 * places**2))


def _is_constant(gradients: Floats) -> bool:
    return bool(np.abs(gradients - gradients[0, 0]).max() <= _ROUNDING * np.abs(gradients).max())


@torch.no_grad()
def scores_of(model: ZeroShotModel, row: Tensor, points: Tensor) -> Floats:
    """Uncalibrated scores of a row for classes of these descriptors, [n, d_a] → [n]."""
    return np.asarray(model.logits(row, model.prototypes(points))[0].double().cpu().numpy())


def slopes(model: ZeroShotModel, row: Tensor, points: Tensor) -> Tensor:
    """Gradient of the score of a row with respect to the descriptor, at each point [n, d_a] → [n, d_a]."""
    points = points.requires_grad_()
    prototypes = model.prototypes(points)
    if not prototypes.requires_grad:
        raise ConfigError(
            "this method trains a classifier instead of computing scores from descriptors, so attributes cannot be "
            "given a share in them; explain a model of another method, such as kernel or classnorm"
        )
    scores = model.logits(row, prototypes).sum()  # a class does not affect the score of another
    (gradients,) = torch.autograd.grad(scores, points)
    return gradients


def _adding_up(contributions: Floats, total: float) -> Floats:
    """Spread what is left of the total, a rounding error, over the contributions in proportion to their magnitude."""
    magnitudes = np.abs(contributions)
    if not magnitudes.any():
        return contributions
    return np.asarray(contributions + (total - contributions.sum()) * magnitudes / magnitudes.sum())
