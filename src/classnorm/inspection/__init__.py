"""What is in a dataset, and whether scores on it can be trusted: facts, warnings and a verdict.

The dataset was checked at the door, so nothing here is an error. Row numbers are 0-based.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from classnorm.data.dataset import ZeroShotDataset
from classnorm.inspection.class_sizes import ClassFacts, class_facts, class_warnings
from classnorm.inspection.descriptors import AttributeFacts, DescriptorPair, attribute_facts, attribute_warnings
from classnorm.inspection.duplicates import (
    MOST_OPERATIONS,
    DuplicateFacts,
    RowPair,
    duplicate_facts,
    duplicate_warnings,
    nearest_rows,
    search_cost,
)
from classnorm.inspection.features import FeatureFacts, feature_facts, feature_warnings
from classnorm.inspection.leaks import LeakFacts, leak_facts, leak_warnings
from classnorm.inspection.measures import NEAR, Spread
from classnorm.progress import OnProgress

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

Verdict = Literal["ready to train", "usable, with warnings"]


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
    progress: OnProgress | None = None,
) -> Inspection:
    """Look at everything.

    Args:
        near: cosine distance under which a test row is the near-duplicate of a training row.
        most_operations: where comparing all test rows would cost more, a sample of them is compared.
        progress: told how much of the comparison is done.

    >>> import numpy as np
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
        *feature_warnings(features, dataset.d_z),
        *class_warnings(classes, int(dataset.seen.sum())),
        *attribute_warnings(attributes),
        *duplicate_warnings(duplicates),
        *leak_warnings(leaks),
    )
    return Inspection(
        name=dataset.name,
        checksum=dataset.checksum,
        split_version=dataset.provenance.get("split", "own"),
        split_checksum=dataset.split.checksum,
        sizes=dataset.sizes,
        provenance=dataset.provenance,
        benchmark=dataset.benchmark,
        notices=tuple(dataset.notices),
        features=features,
        classes=classes,
        attributes=attributes,
        duplicates=duplicates,
        leaks=leaks,
        warnings=warnings,
        verdict="usable, with warnings" if warnings else "ready to train",
    )
