"""Features: their values, and uninformative rows and columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from classnorm.data.dataset import row_chunks
from classnorm.data.inspection.measures import SHOWN, counted, row_norms
from classnorm.data.row_store import Features

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
