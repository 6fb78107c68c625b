"""`synthetic`: random datasets of any size, with attributes as skewed and correlated as real ones; and `simulate`:
random features for the attributes of a GBU folder, for diagnostics that do not need accuracy.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from classnorm.data.bundles import FolderWriter, shard_ranges
from classnorm.data.dataset import Split, ZeroShotDataset, recognise
from classnorm.data.image_table import ImageTable
from classnorm.data.names import find_attribute_names
from classnorm.data.provenance import Provenance
from classnorm.data.row_store import DType, FloatArray, IntArray
from classnorm.data.xlsa17 import AttributesKey, read_splits
from classnorm.errors import ConfigError, unknown_name
from classnorm.io.files import digest
from classnorm.progress import report
from classnorm.settings import check_seed

_PIECE = 4096  # rows drawn at a time


_LARGEST = 10**9


@dataclass(frozen=True)
class SyntheticConfig:
    """Sizes of a synthetic dataset. Also written as text: `synthetic:classes=1000,rows=50000`."""

    classes: int = 200
    unseen: int = 50
    rows: int = 10_000
    features: int = 512
    attributes: int = 100
    factors: int = 12
    """Latent factors of the attributes; fewer factors make the attributes more correlated."""
    noise: float = 1.0
    """Standard deviation within a class, relative to that of the class means."""
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> SyntheticConfig:
        """Parse `classes=1000,rows=50000,…`; other settings keep their defaults."""
        known = {field.name: float if field.name == "noise" else int for field in fields(cls)}
        values: dict[str, Any] = {}
        for item in filter(None, text.split(",")):
            key, _, value = item.partition("=")
            if key not in known:
                raise unknown_name("setting of synthetic", key, known)
            try:
                values[key] = known[key](value)
            except ValueError:
                raise ConfigError(f"synthetic: {key} must be a number, not {value!r}") from None
        return cls(**values)

    def __post_init__(self) -> None:
        """Raise a `ConfigError` for invalid sizes."""
        if not (self.classes - self.unseen >= 2 and self.unseen >= 0 and self.rows >= 2 * self.classes):
            raise ConfigError("synthetic: needs at least 2 seen classes and 2 rows per class")
        largest = max(self.classes, self.rows, self.features, self.attributes, self.factors)
        if largest > _LARGEST or not 0 <= self.noise <= _LARGEST:
            raise ConfigError(f"synthetic: sizes must be at most {_LARGEST:,}")
        check_seed(self.seed)
        if min(self.features, self.attributes, self.factors) < 1:
            raise ConfigError("synthetic: features, attributes and factors must be positive")
        if not (math.isfinite(self.noise) and self.noise >= 0 and self.seed >= 0):
            raise ConfigError("synthetic: noise and seed must not be negative")


def synthetic(config: SyntheticConfig | None = None) -> ZeroShotDataset:
    """Generate a dataset: class factors → skewed, correlated attributes → class means → non-negative features.

    All classes have about the same number of rows; a fifth of the rows of each seen class are test rows.

    >>> synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=8)).sizes["unseen_classes"]
    3
    """
    config = config or SyntheticConfig()
    generator = np.random.default_rng(config.seed)
    descriptors, means = _classes(config, generator)
    features = _rows(config, means, _labels(config), generator)
    return _table(config, descriptors, generator).dataset(features)


def synthesize(
    config: SyntheticConfig,
    path: Path,
    dtype: DType = "float16",
    rows_per_shard: int | None = None,
) -> None:
    """Write a dataset like `synthetic`, of any number of rows, as a folder bundle. The same call resumes.

    Each shard has its own random numbers, so that memory does not grow with the rows.
    """
    generator = np.random.default_rng(config.seed)
    descriptors, means = _classes(config, generator)
    means, labels = means.astype(np.float32), _labels(config)
    ranges = shard_ranges(config.rows, config.features * np.dtype(dtype).itemsize, rows_per_shard)
    with FolderWriter(path, digest([asdict(config), dtype, len(ranges[0])])) as writer:
        for number, rows in enumerate(ranges):
            if writer.facts(number) is None:
                own = np.random.default_rng([config.seed, number])
                # A piece at a time: random numbers are in float32.
                pieces = np.array_split(labels[rows.start : rows.stop], -(-len(rows) // _PIECE))
                writer.write(number, np.concatenate([_rows(config, means, p, own).astype(dtype) for p in pieces]))
            report(rows.stop, config.rows)
        writer.finish(_table(config, descriptors, generator), len(ranges))


def _classes(config: SyntheticConfig, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw the descriptors [classes, attributes] and the means [classes, features] of the classes."""
    factors = generator.standard_normal((config.classes, config.factors))
    loadings = generator.standard_normal((config.factors, config.attributes)) / np.sqrt(config.factors)
    residuals = 0.5 * generator.standard_normal((config.classes, config.attributes))
    descriptors = np.exp(factors @ loadings + residuals)  # log-normal: long-tailed, like real attribute tables
    descriptors *= generator.uniform(0.2, 5.0, config.attributes)
    hidden = np.tanh(np.log(descriptors) @ generator.standard_normal((config.attributes, config.features)) * 0.2)
    return descriptors, hidden + 0.2 * generator.standard_normal((config.classes, config.features))


def _labels(config: SyntheticConfig) -> IntArray:
    return np.arange(config.rows) % config.classes


def _rows(config: SyntheticConfig, means: FloatArray, labels: IntArray, generator: np.random.Generator) -> FloatArray:
    """Draw the features of rows with these labels."""
    features = means[labels].astype(np.float32)
    spread = np.float32(config.noise * means.std())
    features += spread * generator.standard_normal(features.shape, dtype=np.float32)
    return np.maximum(features, 0.0, out=features)


def _table(config: SyntheticConfig, descriptors: FloatArray, generator: np.random.Generator) -> ImageTable:
    """Everything but the features."""
    labels = _labels(config)
    is_unseen = np.isin(labels, generator.permutation(config.classes)[: config.unseen])
    rank = np.arange(config.rows) // config.classes  # 0, 1, … within each class
    is_test = rank % 5 == 4 if config.rows >= 5 * config.classes else rank % 2 == 1
    return ImageTable(
        "synthetic",
        (),
        labels,
        tuple(f"class {c:0{len(str(config.classes - 1))}d}" for c in range(config.classes)),
        descriptors=descriptors.astype(np.float32),
        split=Split.from_masks(is_unseen, is_test),
        provenance=Provenance.of(features="simulated", attributes="simulated", config=str(config)),
    )


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
