"""Calibrated predictions of trained methods: `Scorer`, calibration on validation splits, export."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from classnorm.data import ZeroShotDataset
from classnorm.errors import ModelWarning
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.registry import lazy_names
from classnorm.training import Device, pick_device

if TYPE_CHECKING:
    from classnorm.scoring.answers import Top
    from classnorm.scoring.classes import ClassTable
    from classnorm.scoring.fitting import CalibratedFit, fit_calibrated
    from classnorm.scoring.scorer import Scorer
    from classnorm.scoring.suggestions import suggest

__all__ = ["CalibratedFit", "ClassTable", "Scorer", "Top", "fit", "fit_calibrated", "suggest"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "answers": "Top",
        "classes": "ClassTable",
        "fitting": "CalibratedFit fit_calibrated",
        "scorer": "Scorer",
        "suggestions": "suggest",
    },
)  # they need PyTorch


def fit(
    dataset: ZeroShotDataset,
    method: str = "classnorm",
    recipe: str = "reference",
    seed: int = 0,
    device: Device = "auto",
    **changes: Any,
) -> Scorer:
    """Train a method on a dataset and return its scorer, calibrated according to the recipe.

    Warns (`ModelWarning`) if there are too few seen classes to calibrate, or if the model gets less than half of its
    own training rows right.

    Args:
        changes: config fields that override the recipe, e.g. ``hidden=512``.

    >>> from classnorm.data import synthetic, SyntheticConfig
    >>> data = synthetic(SyntheticConfig(classes=10, unseen=3, rows=200, features=16))
    >>> scorer = fit(data, hidden=32, epochs=2, calibration="none")
    >>> scorer.scores(data.features[:5]).shape
    (5, 10)
    """
    from classnorm.scoring.fitting import fit_calibrated

    job = FitJob(dataset, *resolve(dataset, method, recipe, **changes), seed)
    fitted = fit_calibrated(job, FitContext(pick_device(device)))
    for text in fitted.notices:
        warnings.warn(text, ModelWarning, stacklevel=2)
    return fitted.scorer
