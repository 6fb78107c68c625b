"""`synthetic`: random datasets of any size, with attributes as skewed and correlated as real ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from classnorm.data.dataset import Split, ZeroShotDataset
from classnorm.errors import ConfigError, unknown_name

__all__ = ["SyntheticConfig", "synthetic"]


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


def synthetic(config: SyntheticConfig | None = None) -> ZeroShotDataset:
    """Generate a dataset: class factors → skewed, correlated attributes → class means → non-negative features.

    All classes have about the same number of rows; a fifth of the rows of each seen class are test rows.

    >>> synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=8)).sizes["unseen_classes"]
    3
    """
    config = config or SyntheticConfig()
    if not (config.classes - config.unseen >= 2 and config.unseen >= 0 and config.rows >= 2 * config.classes):
        raise ConfigError("synthetic: needs at least 2 seen classes and 2 rows per class")
    if min(config.features, config.attributes, config.factors) < 1:
        raise ConfigError("synthetic: features, attributes and factors must be positive")
    if not (math.isfinite(config.noise) and config.noise >= 0 and config.seed >= 0):
        raise ConfigError("synthetic: noise and seed must not be negative")
    generator = np.random.default_rng(config.seed)
    factors = generator.standard_normal((config.classes, config.factors))
    loadings = generator.standard_normal((config.factors, config.attributes)) / np.sqrt(config.factors)
    residuals = 0.5 * generator.standard_normal((config.classes, config.attributes))
    descriptors = np.exp(factors @ loadings + residuals)  # log-normal: long-tailed, like real attribute tables
    descriptors *= generator.uniform(0.2, 5.0, config.attributes)

    hidden = np.tanh(np.log(descriptors) @ generator.standard_normal((config.attributes, config.features)) * 0.2)
    means = hidden + 0.2 * generator.standard_normal((config.classes, config.features))
    labels = np.arange(config.rows) % config.classes
    features = means[labels].astype(np.float32)
    spread = np.float32(config.noise * means.std())
    features += spread * generator.standard_normal(features.shape, dtype=np.float32)
    np.maximum(features, 0.0, out=features)

    is_unseen = np.isin(labels, generator.permutation(config.classes)[: config.unseen])
    rank = np.arange(config.rows) // config.classes  # 0, 1, … within each class
    is_test = rank % 5 == 4 if config.rows >= 5 * config.classes else rank % 2 == 1
    return ZeroShotDataset.from_arrays(
        features,
        labels,
        descriptors,
        [f"class {c:0{len(str(config.classes - 1))}d}" for c in range(config.classes)],
        **Split.from_masks(is_unseen, is_test).parts,
        name="synthetic",
        provenance={"features": "simulated", "attributes": "simulated", "config": str(config)},
    )
