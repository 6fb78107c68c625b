"""Are class attributes zero-mean, normal and independent? (appendix H: they are not)"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError

_FEWEST = 8  # classes that D'Agostino and Pearson's test needs
FloatArray = npt.NDArray[np.float64]
HISTOGRAM_EDGES = np.linspace(-3, 6, 46)


@dataclass(frozen=True)
class AttributeStatistics:
    """Statistics of a descriptor table, without its constant attributes."""

    chi2: FloatArray
    """Per attribute, D'Agostino and Pearson's statistic; for normal data mostly between 0 and 5."""
    p_value: FloatArray
    correlation: FloatArray
    """Per attribute, the mean absolute correlation with the others."""
    density: FloatArray
    """Histogram over `HISTOGRAM_EDGES` of all values, standardized per attribute."""
    skewness: FloatArray
    constant: int
    """Number of attributes that are the same for all classes."""
    chance_correlation: float
    """Mean absolute correlation of independent normal attributes over as many classes."""

    @property
    def share_not_normal(self) -> float:
        """Share of attributes for which normality is rejected at 5 %."""
        return float((self.p_value < 0.05).mean())


def attribute_statistics(descriptors: npt.ArrayLike) -> AttributeStatistics:
    """Statistics over the classes of a descriptor table [n_classes, d_a]."""
    from scipy import stats

    table = np.asarray(descriptors, dtype=np.float64)
    n = len(table)
    if n < _FEWEST:
        raise DataError(f"statistics of attributes need at least {_FEWEST} classes, there are {n}")
    varying = np.ptp(table, axis=0) > 1e-9 * np.abs(table).max(axis=0).clip(min=1e-30)
    if not varying.any():
        raise DataError("all attributes are the same for all classes; use descriptors that differ between classes")
    standardized = stats.zscore(table[:, varying])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer than 20 classes: the test is less exact, not wrong
        test = stats.normaltest(standardized)
    correlations = np.abs(standardized.T @ standardized) / n
    return AttributeStatistics(
        chi2=test.statistic,
        p_value=test.pvalue,
        correlation=(correlations.sum(axis=1) - 1.0) / max(1, len(correlations) - 1),
        density=np.histogram(standardized, HISTOGRAM_EDGES, density=True)[0],
        skewness=stats.skew(standardized),
        constant=int((~varying).sum()),
        chance_correlation=float(np.sqrt(2.0 / (np.pi * (n - 1)))),
    )
