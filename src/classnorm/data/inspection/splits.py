"""The split: rows of each class in its parts, and leaks between train and test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.inspection.measures import SHOWN, Spread, counted, some

_IMBALANCED = 20.0  # training rows of the largest seen class over those of the smallest


@dataclass(frozen=True)
class ClassFacts:
    train_rows: Spread  # per seen class
    imbalance: float  # largest over smallest
    smallest: dict[str, int]  # the classes with the fewest training rows
    single_row: int  # seen classes with one training row
    test_seen_rows: Spread | None  # per class that has any
    test_unseen_rows: Spread | None
    seen_without_test_rows: int
    without_rows: tuple[str, ...]


def class_facts(dataset: ZeroShotDataset) -> ClassFacts:
    train, test_seen, test_unseen = (
        np.bincount(dataset.labels[rows], minlength=dataset.n_classes) for rows in dataset.split.parts.values()
    )
    seen = np.flatnonzero(train)
    smallest = seen[np.argsort(train[seen], kind="stable")][:SHOWN]
    spread = Spread.of(train[seen])
    return ClassFacts(
        train_rows=spread,
        imbalance=spread.max / spread.min,
        smallest={dataset.class_names[c]: int(train[c]) for c in smallest},
        single_row=int((train == 1).sum()),
        test_seen_rows=Spread.of(test_seen[test_seen > 0]) if test_seen.any() else None,
        test_unseen_rows=Spread.of(test_unseen[test_unseen > 0]) if test_unseen.any() else None,
        seen_without_test_rows=int((test_seen[seen] == 0).sum()),
        without_rows=tuple(dataset.class_names[c] for c in np.flatnonzero(train + test_seen + test_unseen == 0)),
    )


def class_warnings(facts: ClassFacts, n_seen: int) -> Iterable[str]:
    if n_seen < 3:
        yield 'fewer than 3 seen classes: none can be held out for validation, use `calibration="none"`'
    name, rows = next(iter(facts.smallest.items()))
    if facts.single_row:
        single = [name for name, count in facts.smallest.items() if count == 1]
        yield (
            f"{counted(facts.single_row, 'seen class', 'have')} a single training row "
            f"({some(single, facts.single_row)}): add rows, or make these classes unseen"
        )
    elif facts.imbalance >= _IMBALANCED:
        yield (
            f"the largest seen class has {facts.imbalance:.0f} times the training rows of the smallest "
            f"({name!r}, {rows}): scores weight all classes equally, add rows to the small ones"
        )
    if facts.seen_without_test_rows and facts.test_seen_rows is not None:
        seen_classes = counted(facts.seen_without_test_rows, "seen class", "have")
        yield f"{seen_classes} no test row: left out of the seen accuracy"


@dataclass(frozen=True)
class LeakFacts:
    files_in_both: int | None  # image files with rows in train and in test; None if unknown
    first_files_in_both: tuple[str, ...]
    train_rows_held_out: int | None  # training rows that is_train marks as test
    test_rows_given_out: int | None  # test rows of seen classes that is_train marks as training
    unused_rows: int  # in no part of the split


def leak_facts(dataset: ZeroShotDataset) -> LeakFacts:
    train, test = dataset.split.train, dataset.test_rows
    shared: set[str] | None = None
    if dataset.image_files is not None:
        train_files, test_files = ({dataset.image_files[row] for row in rows.tolist()} for rows in (train, test))
        shared = (train_files & test_files) - {""}
    official = dataset.is_train
    return LeakFacts(
        files_in_both=None if shared is None else len(shared),
        first_files_in_both=tuple(sorted(shared or ())[:SHOWN]),
        train_rows_held_out=None if official is None else int((~official[train]).sum()),
        test_rows_given_out=None if official is None else int(official[dataset.split.test_seen].sum()),
        unused_rows=dataset.n_rows - len(train) - len(test),
    )


def leak_warnings(facts: LeakFacts) -> Iterable[str]:
    if facts.files_in_both:
        yield (
            f"{counted(facts.files_in_both, 'image file', 'have')} rows in train and in test (first: "
            f"{facts.first_files_in_both[0]}): test data leaks into training, keep all rows of a file in one part"
        )
    disagree = "the two splits disagree, correct one"
    if facts.train_rows_held_out:
        yield f"{counted(facts.train_rows_held_out, 'training row', 'are')} marked as test in is_train: {disagree}"
    if facts.test_rows_given_out:
        rows = counted(facts.test_rows_given_out, "test row of seen classes", "are")
        yield f"{rows} marked as training in is_train: {disagree}"
