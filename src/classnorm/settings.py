"""What all configs share: they are valid or do not exist, and only what was changed is stored.

The range of a number stands in its annotation: `lr: Positive = 1e-3`, `temperature: Annotated[float, at_least(0.5)]`.
A rule about several settings is code in `__post_init__`, after `super().__post_init__()`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from classnorm.errors import ConfigError, unknown_name

_LARGEST = 1e100  # of any setting
_LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Bounds:
    """The range of a number, and how an error words it."""

    rule: str
    low: float = -_LARGEST
    high: float = _LARGEST

    def require(self, name: str, value: float) -> None:
        """Raise a `ConfigError` for a number that is out of range or not finite.

        >>> at_least(1).require("epochs", 0)
        Traceback (most recent call last):
        ...
        classnorm.errors.ConfigError: epochs is 0; it must be at least 1
        """
        if not self.low <= value <= self.high:  # nor is NaN
            raise ConfigError(f"{name} is {str(value)[:30]}; it must {self.rule}")


def at_least(low: float) -> Bounds:
    return Bounds(f"be at least {low:g}", low=low)


def at_most(high: float) -> Bounds:
    return Bounds(f"be at most {high:,}", high=high)


def between(low: float, high: float) -> Bounds:
    return Bounds(f"lie between {low:g} and {high:g}", low, high)


POSITIVE = Bounds("be positive", low=math.ulp(0.0))
SHARE = between(0, 1)
Positive = Annotated[float, POSITIVE]
NotNegative = Annotated[float, at_least(0)]
Share = Annotated[float, SHARE]
Count = Annotated[int, at_least(1)]
# Sizes beyond which a setting is a mistake: training would not end, or not fit into memory.
Steps = Annotated[int, at_least(1), at_most(10**6)]
Width = Annotated[int, at_least(1), at_most(1 << 15)]
Depth = Annotated[int, at_least(1), at_most(100)]


def added_setting(default: Any) -> Any:
    """A setting that a config got after runs with it were stored, with the default of those runs."""
    return dataclasses.field(default=default, metadata={"added": True})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings that are checked when they are made."""

    def __post_init__(self) -> None:
        """Raise a `ConfigError` for a number out of range. Subclasses add rules about several settings."""
        for name, bounds in _bounds(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            if not isinstance(value, str):  # like "auto", beside numbers
                for bound in bounds:
                    bound.require(name, value)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, each checked for its name and type."""
        hints = typing.get_type_hints(type(self))
        for name, value in changes.items():
            if name not in hints:
                raise unknown_name("setting", name, hints)
            changes[name] = of_type(name, value, hints[name])
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """All settings, for files and keys, without those of `added_setting` that have their default: keys of earlier
        runs stay valid."""
        added = {f.name: f.default for f in dataclasses.fields(self) if f.metadata.get("added")}
        settings = dataclasses.asdict(self)
        return {name: value for name, value in settings.items() if name not in added or value != added[name]}


@functools.cache
def _bounds(config: type) -> Mapping[str, tuple[Bounds, ...]]:
    """Field → its bounds. A class that only changes the default of a field keeps those of its base."""
    found: dict[str, list[Bounds]] = {}
    for base in reversed(config.__mro__):
        for name, hint in inspect.get_annotations(base, eval_str=True).items():
            known = found.setdefault(name, [])
            known += [
                item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Bounds) and item not in known
            ]
    return {name: tuple(bounds) for name, bounds in found.items() if bounds}


def of_type(name: str, value: Any, hint: Any) -> Any:
    """`value` if it matches the annotation of the setting; integers pass for floats."""
    options = typing.get_args(hint) if typing.get_origin(hint) is not None else (hint,)
    if typing.get_origin(hint) is typing.Literal:
        if value in options:
            return value
        raise unknown_name(f"value of {name}", str(value), map(str, options))
    for option in options:
        if typing.get_origin(option) is typing.Literal:
            if value in typing.get_args(option):
                return value
        elif option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        elif isinstance(value, option) and not (isinstance(value, bool) and option is not bool):
            return value
    expected = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{name} cannot be {value!r}; it must be of type {expected}")


def check_positive(**settings: float | None) -> None:
    """Raise a `ConfigError` for the first number below 1; those that are None are not set."""
    for name, value in settings.items():
        if value is not None and value < 1:
            raise ConfigError(f"`{name}` is {value}; it must be at least 1")


def check_share(**settings: float | None) -> None:
    """Raise a `ConfigError` for the first number that is not between 0 and 1; those that are None are not set."""
    for name, value in settings.items():
        if value is not None and not 0.0 < value < 1.0:
            raise ConfigError(f"`{name}` is {value}; it must be between 0 and 1")


def check_seed(seed: int, name: str = "seed") -> None:
    """Raise a `ConfigError` for a seed that random generators do not take."""
    if not 0 <= seed <= _LARGEST_SEED:
        raise ConfigError(f"`{name}` is {str(seed)[:30]}; it must lie between 0 and {_LARGEST_SEED:,}")
