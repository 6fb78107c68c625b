"""Validation splits, made from training rows only: nothing of the test set or its classes can leak."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from classnorm.data.dataset import IntArray, Split, ZeroShotDataset
from classnorm.errors import DataError

__all__ = ["SplitKind", "hold_out", "stratified", "validation_dataset"]

SplitKind = Literal["paper", "matched"]


def validation_dataset(dataset: ZeroShotDataset, kind: SplitKind = "matched", seed: int = 0) -> ZeroShotDataset:
    """The training rows of `dataset` as a zero-shot dataset of its own.

    Whole seen classes are held out as pseudo-unseen and rows of the remaining ones as pseudo-seen. The real unseen
    classes are not in it, nor is any test row.

    - ``paper``: 10 % of the seen classes (15 % where there are fewer than 50), then 10 % of the remaining rows.
    - ``matched``: the dataset's own share of unseen classes and 20 % of the remaining rows. The better one for a
      calibration, because the balance of seen and unseen classes is what a calibration corrects.
    """
    seen = np.flatnonzero(dataset.seen)
    if kind == "paper":
        class_share, row_share = (0.15 if len(seen) < 50 else 0.10), 0.10
    else:
        class_share, row_share = 1.0 - len(seen) / dataset.n_classes, 0.20
    part = hold_out(dataset, max(1, round(class_share * len(seen))), row_share, seed)
    return replace(part, name=f"{dataset.name} ({kind} validation split {seed})")


def hold_out(dataset: ZeroShotDataset, n_classes: int, row_share: float | None, seed: int) -> ZeroShotDataset:
    """Hold out some seen classes and a share of the other training rows; None for as many rows as those classes have.

    At least two classes are left to train on.
    """
    seen = np.flatnonzero(dataset.seen)
    n_held_out = min(n_classes, len(seen) - 2)
    if n_held_out < 1:
        raise DataError(
            f"{dataset.name}: {len(seen)} seen classes are too few to hold one out for validation (3 are needed); "
            'use `calibration="none"`'
        )
    generator = np.random.default_rng([seed, len(seen)])
    unseen = np.sort(generator.permutation(seen)[:n_held_out])

    train = dataset.split.train
    held_out = np.isin(dataset.labels[train], unseen)
    rest = generator.permutation(train[~held_out])
    if row_share is None:
        row_share = float(min(0.5, held_out.sum() / len(rest)))
    rest, taken = stratified(rest, dataset.labels, row_share)

    return replace(
        dataset.restricted(seen),
        name=f"{dataset.name} (without {n_held_out} classes, split {seed})",
        split=Split(rest, taken, np.sort(train[held_out])),
    )


def stratified(rows: IntArray, labels: IntArray, share: float) -> tuple[IntArray, IntArray]:
    """Shuffled `rows` in two parts, each in order: of each class its first few go to the second, one always stays.

    How many is rounded from class to class, not each for itself, so that the share is right where classes have few
    rows, too; at least one is taken if any class can spare it.
    """
    rows = rows[np.argsort(labels[rows], kind="stable")]
    _, first, count = np.unique(labels[rows], return_index=True, return_counts=True)
    rank = np.arange(len(rows)) - np.repeat(first, count)  # 0, 1, … within each class
    n_taken = np.minimum(np.diff(np.round(share * np.cumsum(count)), prepend=0), count - 1)
    taken = rank < np.repeat(n_taken, count)
    if not taken.any() and (count > 1).any():
        taken[int(first[count.argmax()])] = True
    return np.sort(rows[~taken]), np.sort(rows[taken])
