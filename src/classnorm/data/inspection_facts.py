"""Facts about the features, the classes, the attributes and the split of a dataset, and the warnings that follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data.checks import row_chunks
from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.row_store import Features

Doubles = npt.NDArray[np.float64]

NEAR = 1e-4  # cosine distance below which two rows are one image, or two descriptors one class
SHOWN = 5  # maximum number of examples


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Spread:
        """
        >>> Spread.of(np.array([3, 1, 8]))
        Spread(min=1.0, median=3.0, max=8.0)
        """
        return cls(float(values.min()), float(np.median(values)), float(values.max()))


def row_norms(rows: npt.NDArray[Any]) -> Doubles:
    """Compute L2 norms in float64, where squares of float32 values cannot overflow or underflow."""
    rows = rows.astype(np.float64)
    norms: Doubles = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def counted(n: int, noun: str, verb: str) -> str:
    """
    >>> counted(1, "row", "equal"), counted(2, "seen class", "have"), counted(2, "pair of classes", "are")
    ('1 row equals', '2 seen classes have', '2 pairs of classes are')
    """
    if n == 1:
        return f"1 {noun} { ({'are': 'is', 'have': 'has'}.get(verb, f'{verb}s')) }"
    head, of, tail = noun.partition(" of ")
    return f"{n} {head}{'es' if head.endswith('s') else 's'}{of}{tail} {verb}"


def some(items: Sequence[object], total: int | None = None) -> str:
    """
    >>> some(["a", "b", "c", "d"])
    'a, b, c, …'
    """
    return ", ".join(map(str, items[:3])) + (", …" if (total or len(items)) > 3 else "")


_MANY_CONSTANT = 0.1  # of the feature columns


@dataclass(frozen=True)
class FeatureFacts:
    dtype: str
    min: float
    max: float
    non_negative: bool
    zero_share: float
    constant_columns: int
    zero_rows: int
    first_zero_rows: tuple[int, ...]
    mean_norm: float


def feature_facts(features: Features) -> FeatureFacts:
    """Compute the facts in one pass over all rows."""
    low, high = features[0].astype(np.float64), features[0].astype(np.float64)  # [d_z]
    zeros, norms = 0, []
    for chunk in row_chunks(features):
        low, high = np.minimum(low, chunk.min(axis=0)), np.maximum(high, chunk.max(axis=0))
        zeros += chunk.size - int(np.count_nonzero(chunk))
        norms.append(row_norms(chunk))
    norm = np.concatenate(norms)
    zero_rows = np.flatnonzero(norm == 0)
    return FeatureFacts(
        dtype=str(features.dtype),
        min=float(low.min()),
        max=float(high.max()),
        non_negative=bool(low.min() >= 0),
        zero_share=zeros / features.size,
        constant_columns=int((low == high).sum()),
        zero_rows=len(zero_rows),
        first_zero_rows=tuple(zero_rows[:SHOWN].tolist()),
        mean_norm=float(norm.mean()),
    )


def feature_warnings(facts: FeatureFacts, d_z: int) -> Iterable[str]:
    if not facts.non_negative:
        yield f"features have either sign (down to {facts.min:.3g}): train with `final_relu=False`"
    if facts.zero_rows:
        yield (
            f"{counted(facts.zero_rows, 'row of features', 'are')} all zero "
            f"(first: row {facts.first_zero_rows[0]}): extract them again"
        )
    if facts.constant_columns > _MANY_CONSTANT * d_z:
        yield f"{facts.constant_columns} of {d_z} feature columns are constant: check how they were extracted"


_FEW_NEGATIVE = 0.1  # largest share of negative values that can stand for missing values
_CORRELATED_COLUMNS = 2048  # of more attributes, an evenly spaced sample is correlated


@dataclass(frozen=True)
class DescriptorPair:
    one: str
    one_seen: bool
    other: str
    other_seen: bool
    cosine: float


@dataclass(frozen=True)
class AttributeFacts:
    dimension: int
    min: float
    max: float
    unit_norm: bool
    norm: Spread
    constant_columns: tuple[int, ...]
    constant_among_seen: tuple[int, ...]  # but not among all: their effect cannot be learned
    mean_absolute_correlation: float | None
    median_skewness: float | None
    missing_values: int  # negative codes in an otherwise non-negative table
    missing_classes: tuple[str, ...]
    equal_pairs: int  # of classes whose descriptors have the same direction
    equal_pairs_with_unseen: int
    first_equal_pairs: tuple[DescriptorPair, ...]


def attribute_facts(dataset: ZeroShotDataset) -> AttributeFacts:
    table = dataset.descriptors.astype(np.float64)  # [n_classes, d_a]
    norms = row_norms(table)
    constant = table.min(axis=0) == table.max(axis=0)
    seen = table[dataset.seen]
    constant_among_seen = (seen.min(axis=0) == seen.max(axis=0)) & ~constant
    missing = _missing(table)
    n_pairs, with_unseen, first_pairs = _equal_descriptors(dataset, table / norms[:, None])
    correlation, skewness = _moments(table[:, ~constant])
    return AttributeFacts(
        dimension=dataset.d_a,
        min=float(table.min()),
        max=float(table.max()),
        unit_norm=bool(np.abs(norms - 1.0).max() < 1e-3),
        norm=Spread.of(norms),
        constant_columns=tuple(np.flatnonzero(constant).tolist()),
        constant_among_seen=tuple(np.flatnonzero(constant_among_seen).tolist()),
        mean_absolute_correlation=correlation,
        median_skewness=skewness,
        missing_values=int(missing.sum()),
        missing_classes=tuple(dataset.class_names[c] for c in np.flatnonzero(missing.any(axis=1))),
        equal_pairs=n_pairs,
        equal_pairs_with_unseen=with_unseen,
        first_equal_pairs=first_pairs,
    )


def _missing(table: Doubles) -> npt.NDArray[np.bool_]:
    """Return a mask [n_classes, d_a] of values that stand for "missing", like −1 among AwA's 0 to 100.

    Such values are few, negative and, even after scaling to unit norm, equal within a class.
    """
    negative = table < 0
    lowest = np.where(negative, table, 0.0).min(axis=1, keepdims=True)
    is_code = negative.mean() <= _FEW_NEGATIVE and np.allclose(np.where(negative, table, lowest), lowest, atol=0)
    return negative if is_code else np.zeros_like(negative)


def _equal_descriptors(dataset: ZeroShotDataset, unit: Doubles) -> tuple[int, int, tuple[DescriptorPair, ...]]:
    """Find pairs of classes whose descriptors have the same direction; models ignore the length.

    Returns the number of pairs, the number with an unseen class, and the first few, those with unseen classes first.
    """
    seen, names = dataset.seen.tolist(), dataset.class_names
    first: list[DescriptorPair] = []
    n_pairs = n_with_unseen = 0
    for start in range(0, len(unit), 1024):
        cosine = unit[start : start + 1024] @ unit[start:].T
        one, other = np.nonzero(np.triu(cosine > 1.0 - NEAR, k=1))
        with_unseen = ~(dataset.seen[start + one] & dataset.seen[start + other])
        n_pairs, n_with_unseen = n_pairs + len(one), n_with_unseen + int(with_unseen.sum())
        for pair in np.argsort(~with_unseen, kind="stable")[:SHOWN]:
            a, b = int(start + one[pair]), int(start + other[pair])
            similarity = float(cosine[one[pair], other[pair]])
            first.append(DescriptorPair(names[a], seen[a], names[b], seen[b], similarity))
    first.sort(key=lambda pair: pair.one_seen and pair.other_seen)
    return n_pairs, n_with_unseen, tuple(first[:SHOWN])


def _moments(table: Doubles) -> tuple[float | None, float | None]:
    """Return the mean |correlation| of different attributes, and the median skewness of attributes."""
    if table.shape[1] > _CORRELATED_COLUMNS:
        table = table[:, np.linspace(0, table.shape[1] - 1, _CORRELATED_COLUMNS).astype(int)]
    n = table.shape[1]
    if n == 0:
        return None, None
    z = table - table.mean(axis=0)
    z /= np.sqrt((z**2).mean(axis=0))
    skewness = float(np.median((z**3).mean(axis=0)))
    correlation = float((np.abs(z.T @ z / len(z)).sum() - n) / (n * (n - 1))) if n > 1 else None
    return correlation, skewness


def attribute_warnings(facts: AttributeFacts) -> Iterable[str]:
    if facts.equal_pairs:
        pair = facts.first_equal_pairs[0]
        yield (
            f"{counted(facts.equal_pairs, 'pair of classes', 'have')} the same descriptor, "
            f"{facts.equal_pairs_with_unseen} with an unseen class (first: {pair.one!r} and {pair.other!r}): "
            "no method can distinguish them, describe them better or merge them"
        )
    if facts.constant_columns:
        yield (
            f"{counted(len(facts.constant_columns), 'attribute', 'are')} the same for all classes "
            f"(column {some(facts.constant_columns)}): uninformative, drop it"
        )
    if facts.constant_among_seen:
        attributes = counted(len(facts.constant_among_seen), "attribute", "are")
        yield (
            f"{attributes} the same for all seen classes but not for unseen ones "
            f"(column {some(facts.constant_among_seen)}): their effect cannot be learned, drop them"
        )
    if facts.missing_values:
        yield (
            f"{counted(facts.missing_values, 'attribute value', 'are')} negative in an otherwise non-negative table "
            f"({some(facts.missing_classes)}), like −1 for missing values in AwA: fill them in, or keep them to "
            "compare with published scores"
        )


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
