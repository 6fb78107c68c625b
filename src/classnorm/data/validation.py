"""Validation splits of the training rows; test rows and unseen classes are never used."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from classnorm.data.dataset import Split, ZeroShotDataset
from classnorm.data.row_store import IntArray
from classnorm.errors import DataError

SplitKind = Literal["paper", "matched"]


def validation_dataset(dataset: ZeroShotDataset, kind: SplitKind = "matched", seed: int = 0) -> ZeroShotDataset:
    """Split the training rows of `dataset` into a smaller zero-shot dataset.

    Some seen classes are held out as pseudo-unseen classes, and some rows of the others as pseudo-seen test rows. The
    unseen classes and the test rows of `dataset` are not included.

    - ``paper``: hold out 10 % of the seen classes (15 % if there are fewer than 50) and 10 % of the remaining rows.
    - ``matched``: hold out the dataset's share of unseen classes and 20 % of the remaining rows. Better suited to
      calibration, which corrects the balance between seen and unseen classes.
    """
    seen = np.flatnonzero(dataset.seen)
    if kind == "paper":
        class_share, row_share = (0.15 if len(seen) < 50 else 0.10), 0.10
    else:
        class_share, row_share = 1.0 - len(seen) / dataset.n_classes, 0.20
    part = hold_out(dataset, max(1, round(class_share * len(seen))), row_share, seed)
    return replace(part, name=f"{dataset.name} ({kind} validation split {seed})")


def hold_out(dataset: ZeroShotDataset, n_classes: int, row_share: float | None, seed: int) -> ZeroShotDataset:
    """Hold out seen classes, and a share of the training rows of the other classes.

    At least two classes remain for training. If `row_share` is None, about as many rows of the other classes are held
    out as the held-out classes have, but at most half.
    """
    seen = np.flatnonzero(dataset.seen)
    n_held_out = min(n_classes, len(seen) - 2)
    if n_held_out < 1:
        raise DataError(
            f"{dataset.name}: {len(seen)} seen classes are too few to hold one out for validation (at least 3 needed); "
            'use `calibration="none"`'
        )
    generator = np.random.default_rng([seed, len(seen)])
    unseen = np.sort(generator.permutation(seen)[:n_held_out])

    train = dataset.split.train
    held_out = np.isin(dataset.labels[train], unseen)
    rest = generator.permutation(train[~held_out])
    if row_share is None:
        row_share = float(min(0.5, held_out.sum() / len(rest)))
    rest, test_seen = stratified(rest, dataset.labels, row_share)

    return replace(
        dataset.restricted(seen),
        name=f"{dataset.name} (without {n_held_out} classes, split {seed})",
        split=Split(rest, test_seen, np.sort(train[held_out])),
    )


def hold_out_rows(dataset: ZeroShotDataset, fold: int, n_folds: int) -> ZeroShotDataset:
    """Hold out one of `n_folds` parts of the training rows of each seen class; all classes stay what they are.

    A class of a single row keeps it, so the folds may be empty.
    """
    train = dataset.split.train
    rows = np.random.default_rng([n_folds, len(train)]).permutation(train)
    rows = rows[np.argsort(dataset.labels[rows], kind="stable")]
    _, first, count = np.unique(dataset.labels[rows], return_index=True, return_counts=True)
    rank = np.arange(len(rows)) - np.repeat(first, count)
    held_out = (rank % n_folds == fold) & (np.repeat(count, count) > 1)
    return replace(
        dataset,
        name=f"{dataset.name} (fold {fold + 1} of {n_folds})",
        split=Split(np.sort(rows[~held_out]), np.sort(rows[held_out]), train[:0]),
    )


def stratified(rows: IntArray, labels: IntArray, share: float) -> tuple[IntArray, IntArray]:
    """Split shuffled `rows` by class into two sorted parts; the second has the first few rows of each class.

    Each class keeps at least one row in the first part. Rounding errors carry over between classes, so that the share
    is met even if classes have few rows; the second part is empty only if every class has a single row.
    """
    rows = rows[np.argsort(labels[rows], kind="stable")]
    _, first, count = np.unique(labels[rows], return_index=True, return_counts=True)
    rank = np.arange(len(rows)) - np.repeat(first, count)  # 0, 1, … within each class
    n_second = np.minimum(np.diff(np.round(share * np.cumsum(count)), prepend=0), count - 1)
    in_second = rank < np.repeat(n_second, count)
    if not in_second.any() and (count > 1).any():
        in_second[first[count.argmax()]] = True
    return np.sort(rows[~in_second]), np.sort(rows[in_second])
