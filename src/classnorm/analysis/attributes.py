"""Are class attributes zero-mean, normal and independent? (appendix H: they are not)"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from classnorm.errors import DataError

__all__ = ["AttributeStatistics", "attribute_statistics"]

_FEWEST = 8  # classes that the test of D'Agostino and Pearson needs
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AttributeStatistics:
    """Statistics of a descriptor table; attributes that are the same for all classes are left out."""

    chi2: FloatArray
    """Per attribute, D'Agostino and Pearson's statistic; for normal data mostly between 0 and 5."""
    p_value: FloatArray
    correlation: FloatArray
    """Per attribute, the mean absolute correlation with the others."""
    standardized: FloatArray
    """All attribute values with zero mean and unit variance per attribute, [n_classes × n_attributes] flat."""
    skewness: FloatArray
    constant: int
    """Attributes that are the same for all classes."""
    chance_correlation: float
    """Mean absolute correlation of independent normal attributes over as many classes."""

    @property
    def share_not_normal(self) -> float:
        """Share of attributes for which normality is rejected at 5 %."""
        return float((self.p_value < 0.05).mean())


def attribute_statistics(descriptors: npt.ArrayLike) -> AttributeStatistics:
    """Statistics over the classes of a descriptor table [n_classes, d_a]."""
    table = np.asarray(descriptors, dtype=np.float64)
    if len(table) < _FEWEST:
        raise DataError(f"statistics of attributes need at least {_FEWEST} classes, there are {len(table)}")
    varying = np.ptp(table, axis=0) > 1e-9 * np.abs(table).max(axis=0).clip(min=1e-30)
    if not varying.any():
        raise DataError("all attributes are the same for all classes; the descriptors tell no class from another")
    values = table[:, varying]
    standardized = (values - values.mean(axis=0)) / values.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer than 20 classes: the test is less exact, not wrong
        test = stats.normaltest(standardized, axis=0)
    n = len(table)
    correlations = np.abs(standardized.T @ standardized) / n
    others = (correlations.sum(axis=1) - 1.0) / max(1, len(correlations) - 1)
    chance = float(np.sqrt(2.0 / (np.pi * (n - 1))))
    return AttributeStatistics(
        test.statistic,
        test.pvalue,
        others,
        standardized.ravel(),
        stats.skew(standardized, axis=0),
        int((~varying).sum()),
        chance,
    )
