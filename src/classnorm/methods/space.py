"""Search spaces: the settings that a search varies, with their values or ranges."""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from classnorm.errors import ConfigError, unknown_name
from classnorm.settings import of_type


@dataclass(frozen=True)
class Choice:
    """A finite set of values."""

    values: tuple[Any, ...]

    def __contains__(self, value: Any) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Range:
    """An interval of numbers, sampled uniformly or log-uniformly."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def values(self) -> Choice:
        """Both ends and the middle, for a grid search."""
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        points = (self.low, middle, self.high)
        return Choice(tuple(dict.fromkeys(round(v) if self.whole else float(f"{v:.3g}") for v in points)))


Space = Mapping[str, Choice | Range]


def grid(space: Space) -> list[dict[str, Any]]:
    """All combinations of choices, the last setting varying fastest.

    >>> grid({"lr": Choice((0.1, 0.2)), "layers": Choice((1, 2))})[1]
    {'lr': 0.1, 'layers': 2}
    """
    ranges = [name for name, values in space.items() if isinstance(values, Range)]
    if ranges:
        raise ConfigError(f"a grid needs a list of values; write {ranges[0]}=a,b,c instead of a range")
    choices = [values.values for values in space.values() if isinstance(values, Choice)]
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*choices)]


def parse_space(texts: Sequence[str], config: Any) -> Space:
    """Parse texts like `hidden=512,1024`, `gamma=3..10` or `lr=1e-4..1e-2:log`, for the settings of a config.

    >>> from classnorm.methods import ClassNormConfig
    >>> parse_space(["lr=1e-4..1e-2:log", "layers=2,3"], ClassNormConfig())
    {'lr': Range(low=0.0001, high=0.01, log=True, whole=False), 'layers': Choice(values=(2, 3))}
    """
    hints = typing.get_type_hints(type(config))
    space: dict[str, Choice | Range] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not values:
            raise ConfigError(f"`space` {text!r} is not understood; write FIELD=a,b,c or FIELD=low..high[:log]")
        if name not in hints:
            raise unknown_name("setting", name, hints)
        hint = hints[name]
        space[name] = _range(name, values, hint) if ".." in values else _choice(name, values, hint)
    return space


def _range(name: str, text: str, hint: Any) -> Range:
    bounds, _, suffix = text.partition(":")
    try:
        low, high = map(float, bounds.split(".."))
    except ValueError:
        low, high = math.nan, math.nan
    log = suffix == "log"
    is_number = hint in (int, float) or float in typing.get_args(hint)
    if not is_number or suffix not in ("", "log") or not low < high or (log and low <= 0):
        raise ConfigError(f"`space` {name}={text} is not a range of numbers; write {name}=low..high or low..high:log")
    return Range(low, high, log, whole=hint is int)


def _choice(name: str, text: str, hint: Any) -> Choice:
    return Choice(tuple(of_type(name, _value(item.strip(), hint), hint) for item in text.split(",")))


def _value(text: str, hint: Any) -> Any:
    """The text as a value of the setting's type: bool, int, float or str."""
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    for kind in (int, float) if hint is not str else ():
        try:
            number = kind(text)
        except ValueError:
            continue
        return float(number) if hint is not int else number
    return text
