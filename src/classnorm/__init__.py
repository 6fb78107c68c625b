"""Generalized and continual zero-shot learning with Class Normalization.

>>> from classnorm import fit
>>> from classnorm.data import load
>>> scorer = fit(load("synthetic:classes=20,unseen=5,rows=400"), epochs=2)
>>> len(scorer.class_names)
20
"""

from importlib.metadata import version

from classnorm.methods import Scorer, fit

__all__ = ["Scorer", "__version__", "fit"]

__version__ = version("classnorm")
