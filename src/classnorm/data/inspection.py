"""Inspection of a valid dataset: statistics, and warnings about anything that makes scores unreliable.

Row numbers are 0-based.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.duplicates import (
    MOST_OPERATIONS,
    DuplicateFacts,
    duplicate_facts,
    duplicate_warnings,
)
from classnorm.data.inspection_facts import (
    NEAR,
    AttributeFacts,
    ClassFacts,
    FeatureFacts,
    LeakFacts,
    attribute_facts,
    attribute_warnings,
    class_facts,
    class_warnings,
    feature_facts,
    feature_warnings,
    leak_facts,
    leak_warnings,
)
from classnorm.data.row_store import RowStore

Readiness = Literal["ready to train", "usable, with warnings"]


@dataclass(frozen=True)
class Inspection:
    """Statistics of a dataset, warnings and a verdict."""

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
    verdict: Readiness

    def as_dict(self) -> dict[str, Any]:
        """Return the inspection as JSON."""
        return asdict(self)


def inspect_dataset(
    dataset: ZeroShotDataset,
    *,
    near: float = NEAR,
    most_operations: float = MOST_OPERATIONS,
) -> Inspection:
    """Inspect features, classes, attributes, duplicates and leaks.

    Args:
        near: cosine distance below which a test row is a near-duplicate of a training row.
        most_operations: cost limit of the search for duplicates; above it, only a sample of test rows is compared.

    >>> import numpy as np
    >>> data = ZeroShotDataset.from_arrays(
    ...     [[1, 2], [3, 1], [1, 2]], [0, 1, 1], np.eye(2), ["cat", "dog"], train=[0, 1], test_seen=[2]
    ... )
    >>> inspection = inspect_dataset(data)
    >>> inspection.verdict, inspection.duplicates.exact, inspection.duplicates.other_label
    ('usable, with warnings', 1, 1)
    """
    if isinstance(dataset.features, RowStore):
        dataset.features.verify()
    features, classes, attributes = feature_facts(dataset.features), class_facts(dataset), attribute_facts(dataset)
    duplicates, leaks = duplicate_facts(dataset, near, most_operations), leak_facts(dataset)
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
        provenance=dict(dataset.provenance),
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
