"""Why a class and not another: the difference of their scores, attribute by attribute.

The score of a class is a function g of its descriptor. On the straight line from the descriptor b of the second class
to a of the first, attribute j changes the score by φ_j = (a_j − b_j) ∫ ∂g/∂a_j (b + t (a − b)) dt. These add up to
g(a) − g(b): integrated gradients (Sundararajan, Taly & Yan, ICML 2017). If g is linear between the two, the gradient is
constant and φ_j = w_j (a_j − b_j) exactly. Otherwise the line is cut into pieces, each of which is halved until its
Gauss–Legendre sum agrees with the difference of the scores at its ends: where a ReLU switches, pieces become short. An
attribute that both classes have to the same degree cannot tell them apart: it contributes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data.row_store import Features, RowView, row_blocks
from classnorm.errors import ConfigError

if TYPE_CHECKING:
    from classnorm.methods import ZeroShotModel
    from classnorm.scoring.scorer import Scorer

OTHERS, CALIBRATION, EXAMPLES = "other attributes", "calibration", "examples"
"""Entries of what is not shown one by one, and of what the calibration and examples of the classes add."""

_NODES = 8  # Gauss–Legendre points of a piece of the line
_HALVINGS = 14  # after that many, the score jumps
_TOLERANCE = 1e-3  # error of a piece, as a share of the magnitudes of its contributions
_FLOOR = 1e-4  # error of a piece, as a share of the whole: scores are in float32
_ROUNDING = 1e-5  # of gradients in float32
_NEIGHBOURS = 5
_BLOCK = 256  # rows read at a time

Floats = npt.NDArray[np.float64]

_POINTS, _POINT_WEIGHTS = np.polynomial.legendre.leggauss(_NODES)
_PLACES, _WEIGHTS = (_POINTS + 1) / 2, _POINT_WEIGHTS / 2  # of the integral from 0 to 1


def explain(scorer: Scorer, rows: Features | RowView, top: int = 10) -> list[dict[str, Any]]:
    """The explanation of each row, in the form that `Scorer.explain` documents."""
    explanations = []
    for row, pair in compared(scorer, rows, top):
        ends = tensor(scorer, scorer.descriptors[[pair.second, pair.first]])
        contributions, by = integrated_gradients(scorer.model, row, *ends)
        contributions, calibration = calibrated(scorer, row, pair, contributions)
        shown = _shown(scorer, contributions, pair, top)
        explanations.append(pair.document(scorer, by, [*shown, *calibration]))
    return with_neighbours(scorer, explanations)


class Pair(NamedTuple):
    """The two best classes of a row, as positions, and the difference of their calibrated scores."""

    first: int
    second: int
    difference: float

    def document(self, scorer: Scorer, by: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "class": scorer.class_names[self.first],
            "against": scorer.class_names[self.second],
            "difference": self.difference,
            "by": by,
            "attributes": entries,
        }


def compared(scorer: Scorer, rows: Features | RowView, top: int) -> Iterator[tuple[Tensor, Pair]]:
    """Each row [1, d_z] with its two best classes."""
    if top < 1:
        raise ConfigError(f"`top` is {top}; it must be at least 1")
    if len(scorer.class_names) < 2:
        raise ConfigError("an explanation compares two classes; the model has only one")
    best = scorer.top(rows, 2)
    features = (row for _, block in row_blocks(rows, _BLOCK) for row in block)
    for row, (first, second), scores in zip(features, best.indices, best.scores, strict=True):
        yield tensor(scorer, row[None]), Pair(int(first), int(second), float(scores[0] - scores[1]))


def calibrated(scorer: Scorer, row: Tensor, pair: Pair, contributions: Floats) -> tuple[Floats, list[dict[str, Any]]]:
    """Contributions to the calibrated scores, and entries for what descriptions do not decide.

    If both classes are seen, or both unseen, the calibration multiplies their scores, and with them the contributions,
    by the same factor. Otherwise it is an entry. So are examples, which move prototypes away from the descriptions.
    """
    classes = [pair.first, pair.second]
    described, entries = pair.difference, []
    if scorer.has_examples:
        logits = scores_of(scorer.model, row, tensor(scorer, scorer.descriptors[classes]))
        scores = scorer.calibration.apply(logits, scorer.seen[classes])
        described = float(scores[0] - scores[1])
        entries = [{"name": EXAMPLES, "contribution": pair.difference - described}]
    factors, _ = scorer.calibration.factors_and_shifts(scorer.seen[classes])
    if scorer.calibration.kind == "none" or scorer.seen[pair.first] == scorer.seen[pair.second]:
        return _adding_up(float(factors[0]) * contributions, described), entries
    return contributions, [{"name": CALIBRATION, "contribution": described - float(contributions.sum())}, *entries]


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


def _shown(scorer: Scorer, contributions: Floats, pair: Pair, top: int) -> list[dict[str, Any]]:
    """The largest contributions by name, and the sum of the others. Columns of the same name are one attribute."""
    groups = columns_by_name(scorer)
    sums = {name: float(contributions[columns].sum()) for name, columns in groups.items()}
    order = sorted(sums, key=lambda name: -abs(sums[name]))
    shown: list[dict[str, Any]] = [{"name": name, "contribution": sums[name]} for name in order[:top] if sums[name]]
    for entry in shown:
        if len(columns := groups[entry["name"]]) == 1:
            value, other = scorer.descriptors[[pair.first, pair.second], columns[0]]
            entry |= {"value": float(value), "value_against": float(other)}
    rest = sum(sums[name] for name in order[top:])
    return [*shown, *([{"name": OTHERS, "contribution": rest}] if rest else [])]


def columns_by_name(scorer: Scorer) -> dict[str, list[int]]:
    """The columns of the descriptors by the name of their attribute, by default `attribute 0`, `attribute 1`, …"""
    groups: dict[str, list[int]] = {}
    for column, name in enumerate(scorer.attribute_names or [f"attribute {i}" for i in range(scorer.d_a)]):
        groups.setdefault(name, []).append(column)
    return groups


def with_neighbours(scorer: Scorer, explanations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The explanations, each with the training classes that the prototype of its class leans on."""
    position = {name: i for i, name in enumerate(scorer.class_names)}
    found = neighbours(scorer, sorted({position[explanation["class"]] for explanation in explanations}))
    return [explanation | found[position[explanation["class"]]] for explanation in explanations]


@torch.inference_mode()
def neighbours(scorer: Scorer, classes: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The training classes that the prototypes of these classes lean on."""
    if not classes:
        return {}
    seen = np.flatnonzero(scorer.seen)
    chosen, known = (tensor(scorer, scorer.descriptors[index]) for index in (list(classes), seen))
    weights, by = scorer.model.class_weights(chosen, known), "weights of the class means"
    if weights is None:
        weights = F.normalize(scorer.model.prototypes(chosen)) @ F.normalize(scorer.model.prototypes(known)).T
        by = "cosine of the prototypes"
    result = {}
    for c, row in zip(classes, weights.double().cpu().numpy(), strict=True):
        order = np.argsort(-np.abs(row), kind="stable")
        others = [i for i in order[: _NEIGHBOURS + 1] if seen[i] != c][:_NEIGHBOURS]
        result[c] = {
            "neighbours": [{"class": scorer.class_names[seen[i]], "weight": float(row[i])} for i in others],
            "neighbours_by": by,
        }
    return result


def tensor(scorer: Scorer, array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float32)).to(scorer.device)
