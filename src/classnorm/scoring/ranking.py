"""The best classes of each row, for more classes than can be sorted.

Sorting, even partial, takes longer than the product that gives the scores of 20,000 classes. Here the maxima of groups
of classes say which few groups hold the best, and only those are ranked. All passes over the scores are in chunks that
fit a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from classnorm.data.row_store import Features, RowView
from classnorm.errors import ConfigError
from classnorm.metrics import Calibration

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer

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


def top_classes(scorer: Scorer, rows: Features | RowView, k: int) -> Top:
    """The k best classes of each row; see `Scorer.top`."""
    k = min(k, len(scorer.class_names))
    if k < 1:
        raise ConfigError(f"top needs at least 1 class per row, not {k}")
    indices: npt.NDArray[np.int64] = np.empty((len(rows), 0), dtype=np.int64)
    scores: npt.NDArray[np.float64] = np.empty((len(rows), 0))
    total = np.full((len(rows), 1), -np.inf)  # log of the sum of exp(score / temperature)
    size = max(1, scorer.block_bytes // max(scorer.d_a, scorer.d_z))  # their vectors take up to four blocks
    for start in range(0, len(scorer.class_names) if len(rows) else 0, size):
        classes = slice(start, start + size)
        best = [
            best_classes(block, scorer.seen[classes], scorer.calibration, scorer.temperature, k)
            for _, block in scorer.class_blocks(rows, classes)
        ]
        columns, values, log_sums = (np.concatenate(parts) for parts in zip(*best, strict=True))
        indices, scores = np.hstack([indices, columns + start]), np.hstack([scores, values])
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        indices, scores = np.take_along_axis(indices, order, axis=1), np.take_along_axis(scores, order, axis=1)
        total = np.logaddexp(total, log_sums)
    indices, scores = indices.reshape(-1, k), scores.reshape(-1, k)  # [0, k] without rows
    return Top(indices, scores, np.exp(np.minimum(scores / scorer.temperature - total, 0.0)))
