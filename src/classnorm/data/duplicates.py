"""Duplicates: test rows that (nearly) equal a training row, and equal training rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.inspection_facts import SHOWN, Doubles, counted, row_norms
from classnorm.data.row_store import Features, IntArray, RowView, row_blocks
from classnorm.progress import report

MOST_OPERATIONS = 2e13  # of the search for near-duplicates; takes about five minutes on one core

_QUERY_BLOCK, _REFERENCE_BLOCK = 2048, 8192  # rows compared at once: 64 MB of cosines


@dataclass(frozen=True)
class RowPair:
    row: int
    class_name: str
    file: str | None
    train_row: int
    train_class: str
    train_file: str | None
    cosine_distance: float
    exact: bool
    other_label: bool


@dataclass(frozen=True)
class DuplicateFacts:
    threshold: float
    test_rows: int
    compared_rows: int  # fewer than test_rows in huge datasets
    near: int  # test rows close to a training row, including exact duplicates
    exact: int
    other_label: int
    in_test_seen: int
    in_test_unseen: int
    closest: float | None  # smallest cosine distance between a test and a training row
    first: tuple[RowPair, ...]  # the closest pairs
    train_repeats: int  # training rows equal to an earlier one
    contradictions: int  # training rows equal to a row of another class
    first_contradictions: tuple[RowPair, ...]


def duplicate_facts(dataset: ZeroShotDataset, near: float, most_operations: float) -> DuplicateFacts:
    """Find test rows that (nearly) equal a training row, and equal training rows with different labels."""
    train, test = np.sort(dataset.split.train), np.sort(dataset.test_rows)
    groups = _Groups(dataset.features, train)
    repeated = groups.repeated()
    contradictory = [rows for rows in repeated if len(set(dataset.labels[rows].tolist())) > 1]

    compared = test
    share = most_operations / max(search_cost(dataset), 1.0)
    if share < 1.0:
        count = max(1, int(share * len(test)))
        compared = np.sort(np.random.default_rng(0).choice(test, count, replace=False))
    nearest, cosine = nearest_rows(dataset.features, compared, train)
    distance = np.maximum(0.0, 1.0 - cosine)
    pairs = {
        row: _pair(dataset, row, other, apart, exact=False)
        for row, other, apart in zip(compared.tolist(), nearest.tolist(), distance.tolist(), strict=True)
        if apart < near
    }
    for row, equal in groups.equal_to(dataset.features, test):
        other = next((r for r in equal if dataset.labels[r] == dataset.labels[row]), equal[0])  # prefer the same class
        pairs[row] = _pair(dataset, row, other, 0.0, exact=True)
    closest = [*distance.tolist(), *(pair.cosine_distance for pair in pairs.values())]
    return DuplicateFacts(
        threshold=near,
        test_rows=len(test),
        compared_rows=len(compared),
        near=len(pairs),
        exact=sum(pair.exact for pair in pairs.values()),
        other_label=sum(pair.other_label for pair in pairs.values()),
        in_test_seen=int(np.isin(list(pairs), dataset.split.test_seen).sum()),
        in_test_unseen=int(np.isin(list(pairs), dataset.split.test_unseen).sum()),
        closest=min(closest, default=None),
        first=tuple(sorted(pairs.values(), key=lambda pair: (not pair.exact, pair.cosine_distance, pair.row))[:SHOWN]),
        train_repeats=sum(len(rows) - 1 for rows in repeated),
        contradictions=sum(len(rows) for rows in contradictory),
        first_contradictions=tuple(
            _pair(dataset, next(r for r in rows if dataset.labels[r] != dataset.labels[rows[0]]), rows[0], 0.0, True)
            for rows in contradictory[:SHOWN]
        ),
    )


class _Groups:
    """Groups of equal rows, found by their digests, which take little memory."""

    def __init__(self, features: Features, rows: IntArray) -> None:
        self.values, group = np.unique(_digests(features, rows), return_inverse=True)
        self.rows = rows[np.argsort(group, kind="stable")]  # group by group
        self.bounds = np.append(0, np.cumsum(np.bincount(group, minlength=len(self.values))))

    def group(self, number: int) -> list[int]:
        """Its rows, ascending."""
        rows: list[int] = self.rows[self.bounds[number] : self.bounds[number + 1]].tolist()
        return rows

    def repeated(self) -> list[list[int]]:
        """The groups of more than one row, in the order of their first rows."""
        return sorted(self.group(number) for number in np.flatnonzero(np.diff(self.bounds) > 1).tolist())

    def equal_to(self, features: Features, rows: IntArray) -> Iterable[tuple[int, list[int]]]:
        """The rows that equal a group, with that group."""
        digests = _digests(features, rows)
        numbers = np.minimum(np.searchsorted(self.values, digests), len(self.values) - 1)
        for i in np.flatnonzero(self.values[numbers] == digests):
            yield int(rows[i]), self.group(int(numbers[i]))


def _digests(features: Features, rows: IntArray) -> npt.NDArray[np.bytes_]:
    """[n], equal for equal rows."""
    blocks = (block + features.dtype.type(0) for _, block in row_blocks(RowView(features, rows), 4096))  # −0 becomes 0
    digests = (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for block in blocks for row in block)
    return np.fromiter(digests, dtype="S16", count=len(rows))


def _pair(dataset: ZeroShotDataset, row: int, train_row: int, distance: float, exact: bool) -> RowPair:
    files = dataset.image_files
    label, train_label = int(dataset.labels[row]), int(dataset.labels[train_row])
    return RowPair(
        row=row,
        class_name=dataset.class_names[label],
        file=None if files is None else files[row],
        train_row=train_row,
        train_class=dataset.class_names[train_label],
        train_file=None if files is None else files[train_row],
        cosine_distance=distance,
        exact=exact,
        other_label=label != train_label,
    )


def duplicate_warnings(facts: DuplicateFacts) -> Iterable[str]:
    if facts.near:
        pair = facts.first[0]
        yield (
            f"{counted(facts.near, 'test row', '(nearly) equal')} a training row, {facts.exact} "
            f"exactly, {facts.other_label} of another class (first: test row {pair.row}, training row "
            f"{pair.train_row}): this distorts the scores, remove one row of each pair"
        )
    if facts.contradictions:
        pair = facts.first_contradictions[0]
        yield (
            f"{counted(facts.contradictions, 'training row', 'equal')} one of another "
            f"class (first: rows {pair.train_row} {pair.train_class!r} and {pair.row} {pair.class_name!r}): "
            "correct the labels or remove them"
        )


def search_cost(dataset: ZeroShotDataset) -> float:
    """Return the number of operations to compare every test row with every training row."""
    return 2.0 * len(dataset.test_rows) * len(dataset.split.train) * dataset.d_z


def nearest_rows(features: Features, queries: IntArray, references: IntArray) -> tuple[IntArray, Doubles]:
    """Find for each query row the reference row with the largest cosine, and that cosine in float64.

    Between reference rows that are equally near up to float32 rounding, the choice is arbitrary. The cosine of all-zero
    rows is 0.

    >>> nearest_rows(np.eye(3) + 0.1, np.array([2]), np.array([0, 1]))[0]
    array([0])
    """
    best = np.full(len(queries), -np.inf, dtype=np.float32)
    nearest = np.zeros(len(queries), dtype=np.int64)
    done, total = 0, len(queries) * len(references)
    for start in range(0, len(references), _REFERENCE_BLOCK):
        block = references[start : start + _REFERENCE_BLOCK]
        reference = _unit(features, block, np.float32).T
        for begin in range(0, len(queries), _QUERY_BLOCK):
            part = slice(begin, begin + _QUERY_BLOCK)
            cosine = _unit(features, queries[part], np.float32) @ reference  # [queries, references] of the block
            index = cosine.argmax(axis=1)
            value = cosine[np.arange(len(index)), index]
            better = value > best[part]
            best[part][better], nearest[part][better] = value[better], block[index[better]]
            done += cosine.size
            report(done, total)
    cosines = np.zeros(len(queries))
    for start in range(0, len(queries), 512):
        part = slice(start, start + 512)
        pair = (_unit(features, rows[part], np.float64) for rows in (queries, nearest))
        cosines[part] = np.einsum("ij,ij->i", *pair)
    return nearest, cosines


def _unit(features: Features, rows: IntArray, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the rows scaled to unit norm, [n, d_z]; all-zero rows stay zero."""
    unit = np.empty((len(rows), features.shape[1]), dtype=dtype)
    for start in range(0, len(rows), 512):
        chunk = features[rows[start : start + 512]].astype(np.float64)
        norm = row_norms(chunk)
        unit[start : start + 512] = chunk / np.where(norm > 0, norm, 1.0)[:, None]
    return unit
