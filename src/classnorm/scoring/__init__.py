"""Calibrated predictions of trained methods: `Scorer`, calibration on validation splits, export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.registry import lazy_names

if TYPE_CHECKING:
    from classnorm.scoring.answers import Top
    from classnorm.scoring.classes import ClassTable
    from classnorm.scoring.fitting import CalibratedFit, fit, fit_calibrated
    from classnorm.scoring.scorer import Scorer
    from classnorm.scoring.suggestions import suggest

__all__ = ["CalibratedFit", "ClassTable", "Scorer", "Top", "fit", "fit_calibrated", "suggest"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "answers": "Top",
        "classes": "ClassTable",
        "fitting": "CalibratedFit fit fit_calibrated",
        "scorer": "Scorer",
        "suggestions": "suggest",
    },
)  # they need PyTorch
