"""Leaks: image files in both train and test, and rows on which the two splits disagree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from classnorm.data.dataset import ZeroShotDataset
from classnorm.inspection.measures import SHOWN, counted

__all__ = ["LeakFacts", "leak_facts", "leak_warnings"]


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
