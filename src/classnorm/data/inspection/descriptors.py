"""Attributes: their values, uninformative columns, and equal descriptors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.inspection.measures import NEAR, SHOWN, Doubles, Spread, counted, row_norms, some

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
