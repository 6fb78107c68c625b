"""What is in a dataset, and whether scores on it can be trusted: facts, warnings and a verdict.

The dataset was checked at the door, so nothing here is an error. Row numbers are 0-based.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.data.dataset import FloatArray, IntArray, ZeroShotDataset, row_chunks
from classnorm.data.xlsa17 import recognise

__all__ = [
    "AttributeFacts",
    "ClassFacts",
    "DescriptorPair",
    "DuplicateFacts",
    "FeatureFacts",
    "Inspection",
    "LeakFacts",
    "RowPair",
    "Spread",
    "Verdict",
    "inspect_dataset",
    "nearest_rows",
    "search_cost",
]

Doubles = npt.NDArray[np.float64]
Progress = Callable[[float], None]  # is told the share that is done
Verdict = Literal["ready to train", "usable, with warnings"]

NEAR = 1e-4  # cosine distance under which two rows are one picture, or two descriptors one class
MOST_OPERATIONS = 2e13  # of the search for near-duplicates; about five minutes on one core

_IMBALANCED = 20.0  # training rows of the largest seen class over those of the smallest
_MANY_CONSTANT = 0.1  # of the feature columns
_FEW_NEGATIVE = 0.1  # of the attribute values, for them to be a code and not a value
_SHOWN = 5  # examples kept of anything
_QUERY_BLOCK, _REFERENCE_BLOCK = 2048, 8192  # rows compared at once: 64 MB of cosines
_CORRELATED_COLUMNS = 2048  # of more attributes, so many evenly spaced ones are correlated


@dataclass(frozen=True)
class Spread:
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
    constant_among_seen: tuple[int, ...]  # but not among all: nothing can be learned of them
    mean_absolute_correlation: float | None
    median_skewness: float | None
    missing_values: int  # negative codes in an otherwise non-negative table
    missing_classes: tuple[str, ...]
    equal_pairs: int  # of classes whose descriptors point the same way
    equal_pairs_with_unseen: int
    first_equal_pairs: tuple[DescriptorPair, ...]


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


@dataclass(frozen=True)
class LeakFacts:
    files_in_both: int | None  # image files with rows in train and in test; None if files are not known
    first_files_in_both: tuple[str, ...]
    train_rows_held_out: int | None  # training rows that is_train keeps for testing
    test_rows_given_out: int | None  # test rows of seen classes that is_train gives for training
    unused_rows: int  # in no part of the split


@dataclass(frozen=True)
class Inspection:
    """The whole story of a dataset."""

    name: str
    checksum: str
    split_version: str
    split_checksum: str
    sizes: dict[str, int]
    provenance: dict[str, str]
    benchmark: str | None
    notices: tuple[str, ...]
    features: FeatureFacts
    classes: ClassFacts
    attributes: AttributeFacts
    duplicates: DuplicateFacts
    leaks: LeakFacts
    warnings: tuple[str, ...]
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def inspect_dataset(
    dataset: ZeroShotDataset,
    *,
    near: float = NEAR,
    most_operations: float = MOST_OPERATIONS,
    progress: Progress | None = None,
) -> Inspection:
    """Look at everything.

    Args:
        near: cosine distance under which a test row is the near-duplicate of a training row.
        most_operations: where comparing all test rows would cost more, a sample of them is compared.
        progress: is told the share of the comparison that is done.

    >>> data = ZeroShotDataset.from_arrays(
    ...     [[1, 2], [3, 1], [1, 2]], [0, 1, 1], np.eye(2), ["cat", "dog"], train=[0, 1], test_seen=[2]
    ... )
    >>> found = inspect_dataset(data)
    >>> found.verdict, found.duplicates.exact, found.duplicates.other_label
    ('usable, with warnings', 1, 1)
    """
    features, classes, attributes = feature_facts(dataset.features), class_facts(dataset), attribute_facts(dataset)
    duplicates, leaks = duplicate_facts(dataset, near, most_operations, progress), leak_facts(dataset)
    warnings = (
        *dataset.notices,
        *_feature_warnings(features, dataset.d_z),
        *_validation_warnings(dataset),
        *_class_warnings(classes),
        *_attribute_warnings(attributes),
        *_duplicate_warnings(duplicates),
        *_leak_warnings(leaks),
    )
    return Inspection(
        name=dataset.name,
        checksum=dataset.checksum,
        split_version=dataset.provenance.get("split", "own"),
        split_checksum=dataset.split.checksum,
        sizes=dataset.sizes,
        provenance=dataset.provenance,
        benchmark=recognise(dataset.class_names, dataset.n_rows),
        notices=tuple(dataset.notices),
        features=features,
        classes=classes,
        attributes=attributes,
        duplicates=duplicates,
        leaks=leaks,
        warnings=warnings,
        verdict="usable, with warnings" if warnings else "ready to train",
    )


# ---- Features ----------------------------------------------------------------------------------------------


def feature_facts(features: FloatArray) -> FeatureFacts:
    """Of all rows, in one pass over them."""
    low, high = features[0].astype(np.float64), features[0].astype(np.float64)  # [d_z]
    zeros, norms = 0, []
    for chunk in row_chunks(features):
        low, high = np.minimum(low, chunk.min(axis=0)), np.maximum(high, chunk.max(axis=0))
        zeros += chunk.size - int(np.count_nonzero(chunk))
        norms.append(_norms(chunk))
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
        first_zero_rows=tuple(zero_rows[:_SHOWN].tolist()),
        mean_norm=float(norm.mean()),
    )


def _norms(rows: npt.NDArray[Any]) -> Doubles:
    """In float64, where no square of a float32 overflows or vanishes."""
    wide = rows.astype(np.float64)
    norms: Doubles = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return norms


def _feature_warnings(facts: FeatureFacts, d_z: int) -> Iterable[str]:
    if not facts.non_negative:
        yield f"features are of either sign (down to {facts.min:.3g}): train with --final-relu False"
    if facts.zero_rows:
        yield (
            f"{_count(facts.zero_rows, 'row')} of features {_are(facts.zero_rows)} all zero "
            f"(first: row {facts.first_zero_rows[0]}): nothing can be recognised there, extract again"
        )
    if facts.constant_columns > _MANY_CONSTANT * d_z:
        yield (
            f"{facts.constant_columns} of {d_z} feature columns are constant: they tell nothing, "
            "check how the features were extracted"
        )


# ---- Classes -----------------------------------------------------------------------------------------------


def class_facts(dataset: ZeroShotDataset) -> ClassFacts:
    train, test_seen, test_unseen = (
        np.bincount(dataset.labels[rows], minlength=dataset.n_classes)
        for rows in (dataset.split.train, dataset.split.test_seen, dataset.split.test_unseen)
    )
    seen = np.flatnonzero(train)
    smallest = seen[np.argsort(train[seen], kind="stable")][:_SHOWN]
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


def _validation_warnings(dataset: ZeroShotDataset) -> Iterable[str]:
    if dataset.seen.sum() < 3:
        yield "fewer than 3 seen classes: none can be held out for validation, train with --calibration none"


def _class_warnings(facts: ClassFacts) -> Iterable[str]:
    name, rows = next(iter(facts.smallest.items()))
    if facts.single_row:
        single = [name for name, count in facts.smallest.items() if count == 1]
        yield (
            f"{_count(facts.single_row, 'seen class', 'seen classes')} {_have(facts.single_row)} a single training row "
            f"({_some(single, facts.single_row)}): add rows, or move the class to the unseen ones"
        )
    elif facts.imbalance >= _IMBALANCED:
        yield (
            f"the largest seen class has {facts.imbalance:.0f} times the training rows of the smallest "
            f"({name!r}, {rows}): the scores weigh both alike, add rows of the small ones"
        )
    if facts.seen_without_test_rows and facts.test_seen_rows is not None:
        n = facts.seen_without_test_rows
        yield f"{_count(n, 'seen class', 'seen classes')} {_have(n)} no test row: left out of the seen accuracy"


# ---- Attributes --------------------------------------------------------------------------------------------


def attribute_facts(dataset: ZeroShotDataset) -> AttributeFacts:
    table = dataset.descriptors.astype(np.float64)  # [n_classes, d_a]
    norms = _norms(table)
    constant = table.min(axis=0) == table.max(axis=0)
    of_seen = table[dataset.seen]
    untaught = (of_seen.min(axis=0) == of_seen.max(axis=0)) & ~constant
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
        constant_among_seen=tuple(np.flatnonzero(untaught).tolist()),
        mean_absolute_correlation=correlation,
        median_skewness=skewness,
        missing_values=int(missing.sum()),
        missing_classes=tuple(dataset.class_names[c] for c in np.flatnonzero(missing.any(axis=1))),
        equal_pairs=n_pairs,
        equal_pairs_with_unseen=with_unseen,
        first_equal_pairs=first_pairs,
    )


def _missing(table: Doubles) -> npt.NDArray[np.bool_]:
    """[n_classes, d_a], true where a value stands for "missing": AwA has −1 in a table of 0 to 100.

    Few values are negative and those of one class are equal; they are not −1 any more after scaling to unit norm.
    """
    negative = table < 0
    lowest = np.where(negative, table, 0.0).min(axis=1, keepdims=True)
    is_code = negative.mean() <= _FEW_NEGATIVE and np.allclose(np.where(negative, table, lowest), lowest, atol=0)
    return negative if is_code else np.zeros_like(negative)


def _equal_descriptors(dataset: ZeroShotDataset, unit: Doubles) -> tuple[int, int, tuple[DescriptorPair, ...]]:
    """Pairs of classes whose descriptors point the same way: how many, how many with an unseen class, the first few.

    Pairs with an unseen class come first. Length does not count, as models scale descriptors to unit norm.
    """
    seen, names = dataset.seen.tolist(), dataset.class_names
    first: list[DescriptorPair] = []
    n_pairs = n_with_unseen = 0
    for start in range(0, len(unit), 1024):
        cosine = unit[start : start + 1024] @ unit[start:].T
        one, other = np.nonzero(np.triu(cosine > 1.0 - NEAR, k=1))
        with_unseen = ~(dataset.seen[start + one] & dataset.seen[start + other])
        n_pairs, n_with_unseen = n_pairs + len(one), n_with_unseen + int(with_unseen.sum())
        for pair in np.argsort(~with_unseen, kind="stable")[:_SHOWN]:
            a, b = int(start + one[pair]), int(start + other[pair])
            alike = float(cosine[one[pair], other[pair]])
            first.append(DescriptorPair(names[a], seen[a], names[b], seen[b], alike))
    first.sort(key=lambda pair: pair.one_seen and pair.other_seen)
    return n_pairs, n_with_unseen, tuple(first[:_SHOWN])


def _moments(table: Doubles) -> tuple[float | None, float | None]:
    """Mean |correlation| between different attributes, and the median over attributes of their skewness."""
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


def _attribute_warnings(facts: AttributeFacts) -> Iterable[str]:
    if facts.equal_pairs:
        pair = facts.first_equal_pairs[0]
        yield (
            f"{_count(facts.equal_pairs, 'pair')} of classes {_have(facts.equal_pairs)} the same descriptor, "
            f"{facts.equal_pairs_with_unseen} with an unseen class (first: {pair.one!r} and {pair.other!r}): "
            "no method can tell them apart, describe them better or merge them"
        )
    if facts.constant_columns:
        n = len(facts.constant_columns)
        yield (
            f"{_count(n, 'attribute')} {_are(n)} the same for all classes (column {_some(facts.constant_columns)}): "
            "this tells no class from another, drop it"
        )
    if facts.constant_among_seen:
        n = len(facts.constant_among_seen)
        yield (
            f"{_count(n, 'attribute')} {_are(n)} the same for all seen classes but not for unseen ones "
            f"(column {_some(facts.constant_among_seen)}): what they mean cannot be learned, drop them"
        )
    if facts.missing_values:
        n = facts.missing_values
        yield (
            f"{_count(n, 'attribute value')} {_are(n)} negative in an otherwise non-negative table "
            f"({_some(facts.missing_classes)}), as −1 for missing in AwA: fill them in, or keep them to compare with "
            "published scores"
        )


# ---- Duplicates --------------------------------------------------------------------------------------------


def search_cost(dataset: ZeroShotDataset) -> float:
    """Operations to compare every test row with every training row."""
    return 2.0 * len(dataset.test_rows) * len(dataset.split.train) * dataset.d_z


def nearest_rows(
    features: FloatArray, queries: IntArray, references: IntArray, progress: Progress | None = None
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
                progress(done / total)
    return nearest, _cosines(features, queries, nearest)


def _unit(features: FloatArray, rows: IntArray) -> npt.NDArray[np.float32]:
    """[rows, d_z] of unit norm in float32; all-zero rows stay."""
    unit = np.empty((len(rows), features.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), 512):
        wide = features[rows[start : start + 512]].astype(np.float64)
        norm = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        norm[norm == 0] = 1.0
        unit[start : start + 512] = wide / norm[:, None]
    return unit


def _cosines(features: FloatArray, one: IntArray, other: IntArray) -> Doubles:
    """Between the rows of each pair, in float64."""
    cosine = np.zeros(len(one))
    for start in range(0, len(one), 512):
        part = slice(start, start + 512)
        a, b = features[one[part]].astype(np.float64), features[other[part]].astype(np.float64)
        norm = _norms(a) * _norms(b)
        norm[norm == 0] = 1.0
        cosine[part] = np.einsum("ij,ij->i", a, b) / norm
    return cosine


def duplicate_facts(
    dataset: ZeroShotDataset,
    near: float = NEAR,
    most_operations: float = MOST_OPERATIONS,
    progress: Progress | None = None,
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
        first=tuple(sorted(pairs.values(), key=lambda pair: (not pair.exact, pair.cosine_distance, pair.row))[:_SHOWN]),
        train_repeats=sum(len(rows) - 1 for rows in repeated),
        contradictions=sum(len(rows) for rows in torn),
        first_contradictions=tuple(
            _pair(dataset, next(r for r in rows if dataset.labels[r] != dataset.labels[rows[0]]), rows[0], 0.0, True)
            for rows in torn[:_SHOWN]
        ),
    )


def _digests(features: FloatArray, rows: IntArray) -> Iterable[bytes]:
    """One per row, equal for equal rows."""
    for start in range(0, len(rows), 4096):
        chunk = np.ascontiguousarray(features[rows[start : start + 4096]])
        chunk = chunk + chunk.dtype.type(0)  # −0 becomes 0
        for row in chunk:
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


def _duplicate_warnings(facts: DuplicateFacts) -> Iterable[str]:
    if facts.near:
        pair = facts.first[0]
        yield (
            f"{_count(facts.near, 'test row')} (nearly) {_verb(facts.near, 'equal')} a training row, {facts.exact} "
            f"exactly, {facts.other_label} of another class (first: test row {pair.row}, training row "
            f"{pair.train_row}): they distort the scores, remove one of each pair"
        )
    if facts.contradictions:
        pair = facts.first_contradictions[0]
        yield (
            f"{_count(facts.contradictions, 'training row')} {_verb(facts.contradictions, 'equal')} one of another "
            f"class (first: rows {pair.train_row} {pair.train_class!r} and {pair.row} {pair.class_name!r}): "
            "correct the labels or remove them"
        )


# ---- Leaks -------------------------------------------------------------------------------------------------


def leak_facts(dataset: ZeroShotDataset) -> LeakFacts:
    train, test = dataset.split.train, dataset.test_rows
    shared: set[str] | None = None
    if dataset.image_files is not None:
        of_train, of_test = ({dataset.image_files[row] for row in rows.tolist()} for rows in (train, test))
        shared = (of_train & of_test) - {""}
    official = dataset.is_train
    return LeakFacts(
        files_in_both=None if shared is None else len(shared),
        first_files_in_both=tuple(sorted(shared or ())[:_SHOWN]),
        train_rows_held_out=None if official is None else int((~official[train]).sum()),
        test_rows_given_out=None if official is None else int(official[dataset.split.test_seen].sum()),
        unused_rows=dataset.n_rows - len(train) - len(test),
    )


def _leak_warnings(facts: LeakFacts) -> Iterable[str]:
    if facts.files_in_both:
        yield (
            f"{_count(facts.files_in_both, 'image file')} {_have(facts.files_in_both)} rows in train and in test "
            f"(first: {facts.first_files_in_both[0]}): the test has been seen, keep the rows of a file on one side"
        )
    if facts.train_rows_held_out:
        yield (
            f"{_count(facts.train_rows_held_out, 'training row')} {_are(facts.train_rows_held_out)} marked as test in "
            "is_train: the two splits disagree, correct one"
        )
    if facts.test_rows_given_out:
        yield (
            f"{_count(facts.test_rows_given_out, 'test row')} of seen classes {_are(facts.test_rows_given_out)} marked "
            "as training in is_train: the two splits disagree, correct one"
        )


# ---- Words -------------------------------------------------------------------------------------------------


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _have(n: int) -> str:
    return "has" if n == 1 else "have"


def _verb(n: int, verb: str) -> str:
    return verb + "s" if n == 1 else verb


def _some(items: Sequence[object], total: int | None = None) -> str:
    """
    >>> _some(["a", "b", "c", "d"])
    'a, b, c, …'
    """
    return ", ".join(map(str, items[:3])) + (", …" if (total or len(items)) > 3 else "")
