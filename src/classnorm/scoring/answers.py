"""From logits to answers: the best classes of each row, whether it is of a known class, and its prediction set.

Sorting, even partial, takes longer than the product that gives the scores of 20,000 classes. Here the maxima of groups
of classes say which few groups hold the best, and only those are ranked. All passes over the scores are in chunks that
fit a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from classnorm.metrics import Calibration
from classnorm.metrics.probability import members
from classnorm.scoring.classes import Floats, Ints
from classnorm.scoring.validation import Validation

_CHUNK = 1 << 20  # logits ranked at a time; near a cache, and enough for several threads
_SAFE = 60.0  # largest score whose exponential, times any number of classes, is a finite float32
_SPARE = 3  # candidates beyond the best k; rows that are still undecided are sorted completely


class Ranking(NamedTuple):
    """The k best classes of each row, best first."""

    indices: npt.NDArray[np.int64]  # [n, k]
    scores: npt.NDArray[np.float64]  # [n, k], calibrated
    log_sums: npt.NDArray[np.float64]  # [n, 1], log Σ exp(score / temperature) over all classes


@torch.inference_mode()
def best_classes(
    logits: Tensor, seen: npt.NDArray[np.bool_], calibration: Calibration, temperature: float, k: int
) -> Ranking:
    """The best by calibrated logits in double precision; of equal scores, the first class wins.

    Args:
        logits: [n, n_classes], uncalibrated, float32.
        seen: [n_classes]
    """
    n_classes = len(seen)
    k, width = min(k, n_classes), min(k + _SPARE, n_classes)
    factors, shifts = calibration.factors_and_shifts(seen)
    scale, shift = (torch.from_numpy(part / temperature).to(logits) for part in (factors, -shifts))
    size = 1 << (n_classes // width).bit_length() // 2  # large groups make few maxima, small ones few candidates
    maxima, log_sums = _group_maxima(logits, scale, shift, size)
    columns = _members(maxima.topk(min(width, maxima.shape[1]), dim=1).indices, size, n_classes)
    rough = torch.addcmul(shift[columns], logits.gather(1, columns), scale[columns])
    values, places = rough.topk(width, dim=1)
    columns, worst = columns.gather(1, places).sort(dim=1).values, values[:, -1]
    # Score the candidates, in the order of their columns, in double precision.
    index = columns.cpu().numpy()
    exact = calibration.apply(logits.gather(1, columns).cpu().numpy(), seen[index])
    order = np.argsort(-exact, axis=1, kind="stable")[:, :k]
    index, exact = np.take_along_axis(index, order, axis=1), np.take_along_axis(exact, order, axis=1)
    if width < n_classes:
        # Sort rows with near ties completely: single precision may have misranked them.
        floor = temperature * worst.cpu().double().numpy()
        slack = 1e-6 * (np.abs(exact[:, -1]) + np.abs(shifts).max() + np.abs(floor))
        for row in np.flatnonzero(floor >= exact[:, -1] - slack):
            row_scores = calibration.apply(logits[row].cpu().numpy(), seen)
            index[row] = np.argsort(-row_scores, kind="stable")[:k]
            exact[row] = row_scores[index[row]]
    return Ranking(index, exact, log_sums.cpu().numpy())


def _group_maxima(logits: Tensor, scale: Tensor, shift: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The largest scaled and shifted logits of each group of classes [n, n_groups], and log Σ exp over all [n, 1].

    A score among the k largest of a row is in one of the k groups with the largest maxima, or among the last columns,
    which are in no group.
    """
    n, n_classes = logits.shape
    grouped = n_classes // size * size
    work = torch.empty_like(logits[: max(1, _CHUNK // n_classes)])
    maxima, highest, sums = (logits.new_empty(n, width) for width in (grouped // size, 1, 1))
    parts = zip(*(torch.split(table, len(work)) for table in (logits, maxima, highest, sums)), strict=True)
    for raw, groups, high, total in parts:
        rough = torch.addcmul(shift, raw, scale, out=work[: len(raw)])
        torch.amax(torch.unflatten(rough[:, :grouped], 1, (-1, size)), dim=2, out=groups)
        torch.amax(torch.cat([groups, rough[:, grouped:]], dim=1), dim=1, keepdim=True, out=high)
        if float(high.abs().max()) < _SAFE:
            high.zero_()  # the exponentials need no shift
        else:
            rough.sub_(high)
        torch.sum(rough.exp_(), dim=1, keepdim=True, out=total)
    return maxima, highest.double() + sums.double().log()


def _members(groups: Tensor, size: int, n_classes: int) -> Tensor:
    """The columns of these groups [n, k], and those in no group."""
    members = groups[:, :, None] * size + torch.arange(size, device=groups.device)
    rest = torch.arange(n_classes // size * size, n_classes, device=groups.device).expand(len(groups), -1)
    return torch.cat([members.flatten(1), rest], dim=1)


class Top(NamedTuple):
    """The best classes of each row, best first. All [n, k]."""

    indices: npt.NDArray[np.int64]
    """Positions in `class_names`."""
    scores: npt.NDArray[np.float64]
    probabilities: npt.NDArray[np.float64]
    """With all classes competing, not only these k."""


class Answer(NamedTuple):
    """A class that a row may be of."""

    name: str
    score: float
    probability: float
    kind: str
    """``seen`` or ``unseen``, or what a server calls it."""


class Answers(NamedTuple):
    """What a model says of rows."""

    top: Top
    novelty: Floats | None
    """How little each row looks like any of the classes, [n]; None if that was not asked."""
    sets: list[Ints] | None
    """The positions of the classes that each row may be of, best first; None if that was not asked."""

    def named(self, names: Sequence[str], kinds: Sequence[str]) -> list[list[Answer]]:
        """The best classes of each row."""
        return [
            [Answer(names[c], score, probability, kinds[c]) for c, score, probability in zip(*row, strict=True)]
            for row in zip(*(part.tolist() for part in self.top), strict=True)
        ]

    def part(self, rows: slice, k: int) -> Answers:
        """The answers for some rows, with the k best classes."""
        top = Top(self.top.indices[rows, :k], self.top.scores[rows, :k], self.top.probabilities[rows, :k])
        novelty = None if self.novelty is None else self.novelty[rows]
        return Answers(top, novelty, None if self.sets is None else self.sets[rows])


@dataclass(frozen=True)
class Question:
    """What is asked about rows."""

    top: int = 1
    novelty: bool = False
    limits: Floats | None = None
    """For prediction sets: the largest nonconformity score of each class in a set, [n_classes]."""


def answers(
    logits: Iterable[Tensor], seen: npt.NDArray[np.bool_], validation: Validation, question: Question
) -> Answers:
    """The answers for blocks of logits [n, n_classes]."""
    k = min(question.top, len(seen))
    indices, scores, probabilities = [np.empty((0, k), dtype=np.int64)], [np.empty((0, k))], [np.empty((0, k))]
    novelty: list[Floats] = [np.empty(0)]
    sets: list[Ints] = []
    for block in logits:
        best = best_classes(block, seen, validation.calibration, validation.temperature, k)
        indices.append(best.indices)
        scores.append(best.scores)
        probabilities.append(np.exp(np.minimum(best.scores / validation.temperature - best.log_sums, 0.0)))
        if not question.novelty and question.limits is None:
            continue
        calibrated = validation.calibration.apply(block.cpu().numpy(), seen)
        if question.novelty:
            novelty.append(validation.novelty(calibrated, seen))
        if question.limits is not None:
            inside = members(calibrated, validation.temperature, question.limits)
            sets += [_best_first(row, np.flatnonzero(chosen)) for row, chosen in zip(calibrated, inside, strict=True)]
    return Answers(
        Top(np.concatenate(indices), np.concatenate(scores), np.concatenate(probabilities)),
        np.concatenate(novelty) if question.novelty else None,
        None if question.limits is None else sets,
    )


def _best_first(scores: Floats, classes: Ints) -> Ints:
    return classes[np.argsort(-scores[classes], kind="stable")]
