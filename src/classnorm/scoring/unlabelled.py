"""Unlabelled pictures: prototypes and class shares from soft assignments, with the descriptions as prior.

Expectation maximisation in a few closed-form steps. Each picture is divided among the classes by its probabilities
under the prototypes and class shares so far; then its parts count like labelled pictures (`scoring.examples`), and the
shares are those of the classes in all pictures. Prototypes that have moved to the pictures score higher, those of
unseen classes most: their penalty is the one at which as many pictures are called unseen as before.

The result is *transductive*: it has seen the pictures that it may be scored on, so its scores are never comparable to
those of a model that has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from classnorm.data.row_store import Features, RowView, row_blocks
from classnorm.metrics import softmax
from classnorm.scoring.examples import Examples, Floats, Trust, picture_shares, space_of

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer

_STEPS = 5
_SHARPNESS = 2.0  # of the assignments, against the probabilities of the scorer
_CACHE = 1 << 28  # bytes of placed rows that are kept between the steps; more are computed in each
_SAMPLE = 4096  # rows that choose the penalty
_HALVINGS = 14  # of the range of the penalty
_LEAST = 1e-3  # pictures; less than that in a class has no effect

Placed = Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]]
"""Blocks of rows: what logits are computed from (`Scorer.row_vectors`), and the rows among the prototypes."""


def place(scorer: Scorer, rows: Features | RowView) -> Placed:
    """Rows [n, d_z], kept in memory if they are few."""
    space = space_of(scorer)
    size = max(1, scorer.block_bytes // (8 * max(scorer.d_z, len(scorer.class_names))))

    @torch.inference_mode()
    def blocks() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _, array in row_blocks(rows, size):
            block = scorer.as_tensor(array)
            yield scorer.row_vectors(block), space.place(block)

    if len(rows) * scorer.d_z * 8 > _CACHE:
        return blocks
    kept = list(blocks())
    return lambda: iter(kept)


def adapted(scorer: Scorer, placed: Placed) -> Scorer:
    """The scorer after unlabelled rows, in addition to those that it had before."""
    sample = _sample(placed)
    called_unseen = _called_unseen(scorer, sample)
    current, log_shares = scorer, np.zeros(len(scorer.class_names))
    for _ in range(_STEPS):
        counts, sums = _assigned(current, placed, log_shares)
        # As many pictures again, spread evenly over the classes: a share is never zero.
        log_shares = np.log((counts + counts.mean()) / (2.0 * counts.sum()))
        some = counts > _LEAST
        names = tuple(name for name, has_any in zip(scorer.class_names, some, strict=True) if has_any)
        current = replace(scorer, unlabelled=scorer.unlabelled.plus(Examples(names, counts[some], sums[some])))
        current = _balanced(current, sample, called_unseen)
    return current


@torch.inference_mode()
def _assigned(scorer: Scorer, placed: Placed, log_shares: Floats) -> tuple[Floats, Floats]:
    """Soft counts [n_classes] and sums [n_classes, k] of the rows."""
    counts, sums = np.zeros(len(scorer.class_names)), None
    for vectors, rows in placed():
        scores = scorer.calibration.apply(scorer.logits_of(vectors).cpu().numpy(), scorer.seen)
        shares = softmax(_SHARPNESS * scores / scorer.temperature + log_shares)
        part = (torch.from_numpy(shares.T).to(rows) @ rows).double().cpu()
        counts += shares.sum(axis=0)
        sums = part if sums is None else sums.add_(part)
    assert sums is not None
    return counts, np.asarray(sums.numpy())


def _sample(placed: Placed) -> torch.Tensor:
    """Evenly spaced rows, as logits need them."""
    n = sum(len(vectors) for vectors, _ in placed())
    step, start, kept = -(-n // _SAMPLE), 0, []
    for vectors, _ in placed():
        kept.append(vectors[-start % step :: step])
        start += len(vectors)
    return torch.cat(kept)


@torch.inference_mode()
def _sides(scorer: Scorer, sample: torch.Tensor) -> tuple[Floats, Floats]:
    """Calibrated scores of the best seen class [n] and of all unseen ones [n, n_unseen]."""
    scores = scorer.calibration.apply(scorer.logits_of(sample).cpu().numpy(), scorer.seen)
    return scores[:, scorer.seen].max(axis=1, initial=-np.inf), scores[:, ~scorer.seen]


def _called_unseen(scorer: Scorer, sample: torch.Tensor) -> float:
    """The share of rows whose best class is unseen."""
    best_seen, unseen = _sides(scorer, sample)
    return float((unseen.max(axis=1, initial=-np.inf) > best_seen).mean())


def _balanced(scorer: Scorer, sample: torch.Tensor, called_unseen: float) -> Scorer:
    """The scorer with the penalty of unlabelled pictures at which the given share of rows is called unseen."""
    trust = scorer.trust or Trust.default(scorer)
    scorer = replace(scorer, trust=replace(trust, unlabelled_penalty=0.0))
    if scorer.seen.all() or not scorer.seen.any():
        return scorer
    best_seen, unseen = _sides(scorer, sample)
    weights = picture_shares(scorer)[1][~scorer.seen]
    low, high = -(reach := float(np.abs(best_seen - unseen.max(axis=1)).max())), reach
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        too_many = ((unseen - middle * weights).max(axis=1) > best_seen).mean() > called_unseen
        low, high = (middle, high) if too_many else (low, middle)
    return replace(scorer, trust=replace(trust, unlabelled_penalty=(low + high) / 2.0))
