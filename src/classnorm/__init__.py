"""Generalized and continual zero-shot learning with Class Normalization.

>>> from classnorm import fit
>>> from classnorm.data import load
>>> scorer = fit(load("synthetic:classes=20,unseen=5,rows=400"), epochs=2)
>>> len(scorer.class_names)
20
"""

import os
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from classnorm.registry import lazy_names

if TYPE_CHECKING:
    from classnorm.estimator import ClassNormClassifier
    from classnorm.scoring import Scorer, fit

__all__ = ["ClassNormClassifier", "Scorer", "__version__", "fit"]

# OpenMP threads spin while they wait for each other, by default for so long that two trainings at once slow each other
# down more than 50 times; spinning briefly costs a few percent. Read when PyTorch is loaded.
if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
    os.environ["GOMP_SPINCOUNT"] = "3000"

try:
    __version__ = version("classnorm")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "unknown"
# They need PyTorch and scikit-learn.
__getattr__, __dir__ = lazy_names(__name__, {"scoring": "Scorer fit", "estimator": "ClassNormClassifier"})
