"""Simulated features for the attributes of a GBU folder, for diagnostics that do not need accuracy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classnorm.data.attribute_names import find_attribute_names
from classnorm.data.dataset import Split, ZeroShotDataset
from classnorm.data.gbu_benchmarks import recognise
from classnorm.data.xlsa17 import AttributesKey, read_splits

_UNSEEN = {"SUN": 72, "CUB": 50, "AWA1": 10, "AWA2": 10, "APY": 12}


def simulate(
    folder: Path, *, features: int = 2048, rows: int = 6000, attributes: AttributesKey = "att", seed: int = 0
) -> ZeroShotDataset:
    """Build a dataset from the attributes in `att_splits.mat`; rows, features and split are random.

    As many classes are unseen as in the benchmark (a quarter in other datasets), and all classes have about the same
    number of rows. Features are non-negative, like pooled features of a convolutional network: a random network maps
    the standardized attributes to class means, noise is added, and negative values become 0.
    """
    names, table, split = read_splits(folder, attributes)
    n_classes = len(names)
    benchmark = recognise(names, sum(map(len, split.parts.values())))
    generator = np.random.default_rng(seed)
    table = np.asarray(table, dtype=np.float64)  # [n_classes, d_a]
    deviation = table.std(axis=0)
    standardized = (table - table.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    means = np.tanh(standardized @ generator.standard_normal((table.shape[1], features)) / np.sqrt(table.shape[1]))
    rows = max(rows, 4 * n_classes)
    labels = np.arange(rows) % n_classes
    values = generator.standard_normal((rows, features))
    values += means[labels]
    unseen = generator.permutation(n_classes)[: _UNSEEN.get(benchmark or "", n_classes // 4)]
    is_unseen, is_test = np.isin(labels, unseen), np.arange(rows) // n_classes % 4 == 3
    return ZeroShotDataset.from_arrays(
        np.maximum(values, 0.0, out=values).astype(np.float32),
        labels,
        table,
        names,
        **Split.from_masks(is_unseen, is_test).parts,
        name=f"{benchmark or folder.resolve().name} (simulated features)",
        where=str(folder),
        provenance={"features": "simulated", "attributes": attributes, "split": "simulated"},
        attribute_names=find_attribute_names(folder, table.shape[1]),
    )
