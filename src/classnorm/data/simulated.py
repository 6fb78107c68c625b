"""Real attributes and split sizes of a GBU folder with simulated features: for diagnostics that need no accuracy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.gbu_benchmarks import recognise
from classnorm.data.xlsa17 import AttributesKey, read_splits

__all__ = ["simulate"]

_UNSEEN = {"SUN": 72, "CUB": 50, "AWA1": 10, "AWA2": 10, "APY": 12}


def simulate(
    folder: Path, *, features: int = 2048, rows: int = 6000, attributes: AttributesKey = "att", seed: int = 0
) -> ZeroShotDataset:
    """A dataset with the attributes of `att_splits.mat`; everything else is drawn.

    The benchmark's own number of classes (elsewhere a quarter), drawn by seed, is unseen; rows are dealt evenly to all
    classes. Features are non-negative, as pooled features of a convolutional network are: the rectified output of a
    random network of the standardized attributes, plus noise.
    """
    names, table, split = read_splits(folder, attributes)
    n_classes = len(names)
    total = sum(len(part) for part in (split.train, split.test_seen, split.test_unseen))
    benchmark = recognise(names, total)
    generator = np.random.default_rng(seed)
    values = np.asarray(table, dtype=np.float64)
    deviation = values.std(axis=0)
    standardized = (values - values.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    means = np.tanh(standardized @ generator.standard_normal((values.shape[1], features)) / np.sqrt(values.shape[1]))
    rows = max(rows, 4 * n_classes)
    labels = np.arange(rows) % n_classes
    drawn = generator.standard_normal((rows, features))
    drawn += means[labels]
    unseen = generator.permutation(n_classes)[: _UNSEEN.get(benchmark or "", n_classes // 4)]
    is_unseen, is_test = np.isin(labels, unseen), np.arange(rows) // n_classes % 4 == 3
    return ZeroShotDataset.from_arrays(
        np.maximum(drawn, 0.0, out=drawn).astype(np.float32),
        labels,
        table,
        names,
        train=np.flatnonzero(~is_unseen & ~is_test),
        test_seen=np.flatnonzero(~is_unseen & is_test),
        test_unseen=np.flatnonzero(is_unseen),
        name=f"{benchmark or folder.resolve().name} (simulated features)",
        where=str(folder),
        provenance={"features": "simulated", "attributes": attributes, "split": "simulated"},
    )
