"""Unlabelled pictures: prototypes and class shares from soft assignments, with the descriptions as prior.

Expectation maximisation in a few closed-form steps. Each picture is divided among the classes by its probabilities
under the prototypes and class shares so far; then its parts count like labelled pictures (`scoring.class_vectors`), and
the shares are those of the classes in all pictures. Prototypes that have moved to the pictures score higher, those of
unseen classes most: their penalty is the one at which as many pictures are called unseen as before.

The result is *transductive*: it has seen the pictures that it may be scored on, so its scores are never comparable to
those of a model that has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from classnorm.data.row_store import Features, RowView, row_blocks
from classnorm.metrics import Calibration, softmax
from classnorm.scoring.class_vectors import ClassVectors, as_tensor
from classnorm.scoring.classes import Examples, Floats

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
