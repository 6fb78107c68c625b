"""Search spaces as text."""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from typing import Any

from classnorm.errors import ConfigError, unknown_name
from classnorm.methods import Choice, MethodConfig, Range, Space

__all__ = ["parse_space"]


def parse_space(texts: Sequence[str], config: MethodConfig) -> Space:
    """Parse texts like `hidden=512,1024`, `gamma=3..10` or `lr=1e-4..1e-2:log`.

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
        space[name] = _range(name, values, hint) if ".." in values else _choice(name, values, hint, config)
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


def _choice(name: str, text: str, hint: Any, config: MethodConfig) -> Choice:
    values = tuple(_value(item.strip(), hint) for item in text.split(","))
    for value in values:
        config.replace(**{name: value})  # raises for an invalid value
    return Choice(values)


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
