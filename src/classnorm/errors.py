"""Errors that users can fix. Each message says in one line what is wrong, where, and what to do.

Messages write arguments and settings as Python code in backticks: ``use `features="vit"` ``, ``lower `lr` ``. The
command line prints them as flags (`classnorm.cli.messages`): ``use --features vit``, ``lower --lr``. Only arguments and
settings are in backticks; class and file names are not.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 30  # known names listed in a message


class ClassNormError(Exception):
    """Base class of errors that users can fix. The command line prints the message and exits with code 2."""


class DataError(ClassNormError):
    """An invalid dataset, feature file or descriptor table."""


class ConfigError(ClassNormError):
    """An unknown setting, or one that does not fit the data."""


class ModelError(ClassNormError):
    """A missing or damaged model, or one of the wrong kind."""


class ClusterError(ClassNormError):
    """A Ray cluster that was lost or cannot do the work."""


class TrainingError(ClassNormError):
    """Training that cannot continue."""


class DivergedError(TrainingError):
    """The loss is not finite or grows without bound. Repeating the run would diverge again."""


class OutputError(ClassNormError):
    """A result that cannot be written."""


class ModelWarning(UserWarning):
    """A reason not to rely on a model that has been trained."""


def unknown_name(kind: str, name: str, known: Iterable[str], note: str = "") -> ConfigError:
    """Return the error for an unknown name, with the closest known name as a suggestion, and a note at the end.

    >>> print(unknown_name("recipe", "refrence", ["paper", "reference"]))
    unknown recipe 'refrence'; did you mean 'reference'? Known: paper, reference
    """
    known = sorted(known)
    near = nearest(name, known)
    hint = f"; did you mean {near!r}? " if near is not None else ". "
    some = ", ".join(known[:_SHOWN]) + (f", … ({len(known)} in all)" if len(known) > _SHOWN else "")
    return ConfigError(f"unknown {kind} {name!r}{hint}Known: {some}{note and f'; {note}'}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most likely meant to be, whatever its case; None if none is close.

    >>> nearest("Zebra", ["okapi", "zebra"]), nearest("horse", ["house", "mouse"]), nearest("horse", ["mouse"])
    ('zebra', 'house', None)
    """
    folded = {entry.casefold(): entry for entry in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.7)
    return folded[close[0]] if close else None
