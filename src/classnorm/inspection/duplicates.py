"""Duplicates: test rows that (nearly) equal a training row, and training rows that equal each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from classnorm.data.dataset import FloatArray, IntArray, ZeroShotDataset
from classnorm.inspection.measures import NEAR, SHOWN, Doubles, row_norms
from classnorm.inspection.words import counted, verb
from classnorm.progress import OnProgress, Progress

__all__ = [
    "MOST_OPERATIONS",
    "DuplicateFacts",
    "RowPair",
    "duplicate_facts",
    "duplicate_warnings",
    "nearest_rows",
    "search_cost",
]


MOST_OPERATIONS = 2e13  # of the search for near-duplicates; about five minutes on one core

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
    compared_rows: int  # fewer than test_rows if the dataset is huge
    near: int  # test rows like a training row, exact ones among them
    exact: int
    other_label: int
    in_test_seen: int
    in_test_unseen: int
    closest: float | None  # smallest cosine distance of a test row to a training row
    first: tuple[RowPair, ...]  # the nearest ones
    train_repeats: int  # training rows equal to an earlier one
    contradictions: int  # training rows equal to one of another class
    first_contradictions: tuple[RowPair, ...]


def duplicate_facts(
    dataset: ZeroShotDataset,
    near: float = NEAR,
    most_operations: float = MOST_OPERATIONS,
    progress: OnProgress | None = None,
) -> DuplicateFacts:
    """Test rows that (nearly) equal a training row, and training rows that equal each other under different labels."""
    train, test = np.sort(dataset.split.train), np.sort(dataset.test_rows)
    sources: dict[bytes, list[int]] = {}  # training rows by what they hold
    for row, digest in zip(train.tolist(), _digests(dataset.features, train), strict=True):
        sources.setdefault(digest, []).append(row)
    repeated = [rows for rows in sources.values() if len(rows) > 1]
    torn = [rows for rows in repeated if len(set(dataset.labels[rows].tolist())) > 1]

    compared = test
    share = most_operations / max(search_cost(dataset), 1.0)
    if share < 1.0:
        count = max(1, int(share * len(test)))
        compared = np.sort(np.random.default_rng(0).choice(test, count, replace=False))
    nearest, cosine = nearest_rows(dataset.features, compared, train, progress)
    distance = np.maximum(0.0, 1.0 - cosine)
    pairs = {
        row: _pair(dataset, row, other, apart, exact=False)
        for row, other, apart in zip(compared.tolist(), nearest.tolist(), distance.tolist(), strict=True)
        if apart < near
    }
    for row, digest in zip(test.tolist(), _digests(dataset.features, test), strict=True):
        if digest in sources:  # of several equal training rows, one of the same class if there is any
            equal = sources[digest]
            other = next((r for r in equal if dataset.labels[r] == dataset.labels[row]), equal[0])
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
        contradictions=sum(len(rows) for rows in torn),
        first_contradictions=tuple(
            _pair(dataset, next(r for r in rows if dataset.labels[r] != dataset.labels[rows[0]]), rows[0], 0.0, True)
            for rows in torn[:SHOWN]
        ),
    )


def _digests(features: FloatArray, rows: IntArray) -> Iterable[bytes]:
    """One per row, equal for equal rows."""
    for start in range(0, len(rows), 4096):
        for row in features[rows[start : start + 4096]] + features.dtype.type(0):  # −0 becomes 0
            yield hashlib.blake2b(row.tobytes(), digest_size=16).digest()


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
            f"{counted(facts.near, 'test row')} (nearly) {verb(facts.near, 'equal')} a training row, {facts.exact} "
            f"exactly, {facts.other_label} of another class (first: test row {pair.row}, training row "
            f"{pair.train_row}): they distort the scores, remove one of each pair"
        )
    if facts.contradictions:
        pair = facts.first_contradictions[0]
        yield (
            f"{counted(facts.contradictions, 'training row')} {verb(facts.contradictions, 'equal')} one of another "
            f"class (first: rows {pair.train_row} {pair.train_class!r} and {pair.row} {pair.class_name!r}): "
            "correct the labels or remove them"
        )


def search_cost(dataset: ZeroShotDataset) -> float:
    """Operations to compare every test row with every training row."""
    return 2.0 * len(dataset.test_rows) * len(dataset.split.train) * dataset.d_z


def nearest_rows(
    features: FloatArray, queries: IntArray, references: IntArray, progress: OnProgress | None = None
) -> tuple[IntArray, Doubles]:
    """For each query row the reference row in nearly the same direction, and the cosine of the two in float64.

    Exact up to float32 rounding between reference rows that are equally near. All-zero rows have cosine 0.

    >>> nearest_rows(np.eye(3) + 0.1, np.array([2]), np.array([0, 1]))[0]
    array([0])
    """
    best = np.full(len(queries), -np.inf, dtype=np.float32)
    nearest = np.zeros(len(queries), dtype=np.int64)
    done, total = 0, len(queries) * len(references)
    for start in range(0, len(references), _REFERENCE_BLOCK):
        among = references[start : start + _REFERENCE_BLOCK]
        reference = _unit(features, among).T
        for begin in range(0, len(queries), _QUERY_BLOCK):
            part = slice(begin, begin + _QUERY_BLOCK)
            cosine = _unit(features, queries[part]) @ reference  # [queries, references] of the block
            where = cosine.argmax(axis=1)
            value = cosine[np.arange(len(where)), where]
            better = value > best[part]
            best[part][better], nearest[part][better] = value[better], among[where[better]]
            done += cosine.size
            if progress is not None:
                progress(Progress(done, total))
    return nearest, _cosines(features, queries, nearest)


def _unit(features: FloatArray, rows: IntArray) -> npt.NDArray[np.float32]:
    """[rows, d_z] of unit norm in float32; all-zero rows stay."""
    unit = np.empty((len(rows), features.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), 512):
        wide = features[rows[start : start + 512]].astype(np.float64)
        norm = row_norms(wide)
        norm[norm == 0] = 1.0
        unit[start : start + 512] = wide / norm[:, None]
    return unit


def _cosines(features: FloatArray, one: IntArray, other: IntArray) -> Doubles:
    """Between the rows of each pair, in float64."""
    cosine = np.zeros(len(one))
    for start in range(0, len(one), 512):
        part = slice(start, start + 512)
        a, b = features[one[part]].astype(np.float64), features[other[part]].astype(np.float64)
        norm = row_norms(a) * row_norms(b)
        norm[norm == 0] = 1.0
        cosine[part] = np.einsum("ij,ij->i", a, b) / norm
    return cosine
