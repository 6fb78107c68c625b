"""Generalized and continual zero-shot learning with Class Normalization.

>>> from classnorm import fit
>>> from classnorm.data import load
>>> scorer = fit(load("synthetic:classes=20,unseen=5,rows=400"), epochs=2)
>>> len(scorer.class_names)
20
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from classnorm.estimator import ClassNormClassifier
    from classnorm.scoring import Scorer, fit

__all__ = ["ClassNormClassifier", "Scorer", "__version__", "fit"]

__version__ = version("classnorm")


def __getattr__(name: str) -> Any:
    """Load PyTorch and scikit-learn only when something needs them, so that `classnorm --help` answers at once."""
    if name == "ClassNormClassifier":
        from classnorm.estimator import ClassNormClassifier

        return ClassNormClassifier
    if name in ("Scorer", "fit"):
        from classnorm import scoring

        return getattr(scoring, name)
    raise AttributeError(f"module 'classnorm' has no attribute {name!r}")
