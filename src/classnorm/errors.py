"""Errors that users can fix. Each message says what is wrong, where, and what to do, in one line.

Messages name arguments and settings as Python does, in backticks: ``use `features="vit"` ``, ``lower `lr` ``. The
command line prints these as flags (`classnorm.cli.flags`): ``use --features vit``, ``lower --lr``. An identifier in
backticks is therefore always a setting; class and file names stand without them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ClassNormError",
    "ConfigError",
    "DataError",
    "DivergedError",
    "ModelError",
    "OutputError",
    "TrainingError",
    "unknown_name",
]

_SHOWN = 12  # known names that an error lists


class ClassNormError(Exception):
    """Anything that the user can put right. The command line prints it and exits with code 2."""


class DataError(ClassNormError):
    """A dataset, feature file or descriptor table that cannot be used as it is."""


class ConfigError(ClassNormError):
    """A setting that does not exist, or does not fit the data."""


class ModelError(ClassNormError):
    """A saved model that is missing, damaged or of another kind."""


class TrainingError(ClassNormError):
    """Training that cannot go on."""


class DivergedError(TrainingError):
    """A loss that is not finite, or rises without bound: the same training would diverge again."""


class OutputError(ClassNormError):
    """A result that cannot be written."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is not in the list, with the nearest one that is.

    >>> print(unknown_name("recipe", "refrence", ["paper", "reference"]))
    unknown recipe 'refrence'; did you mean 'reference'? Known: paper, reference
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}? " if near else ". "
    some = ", ".join(known[:_SHOWN]) + (f", … ({len(known)} in all)" if len(known) > _SHOWN else "")
    return ConfigError(f"unknown {kind} {name!r}{hint}Known: {some}")
