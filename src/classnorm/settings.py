"""What all configs share: range checks with one wording, and settings as they are stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from classnorm.errors import ConfigError

__all__ = ["added_setting", "require", "stored_settings"]


def added_setting(default: Any) -> Any:
    """A setting that a config got after runs with it were stored, with the default of those runs."""
    return dataclasses.field(default=default, metadata={"added": True})


def stored_settings(config: Any) -> dict[str, Any]:
    """All settings, without those of `added_setting` that have their default: keys of earlier runs stay valid."""
    added = {f.name: f.default for f in dataclasses.fields(config) if f.metadata.get("added")}
    settings = dataclasses.asdict(config)
    return {name: value for name, value in settings.items() if name not in added or value != added[name]}


def require(
    config: object,
    *,
    positive: Iterable[str] = (),
    at_least: Mapping[str, float] | None = None,
    between: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Raise a `ConfigError` for the first attribute of `config` that is out of range or not finite.

    Args:
        positive: attributes that must be above 0.
        at_least: attribute → smallest value.
        between: attribute → smallest and largest value.

    >>> from types import SimpleNamespace
    >>> require(SimpleNamespace(lr=0.1, epochs=0), positive=["lr"], at_least={"epochs": 1})
    Traceback (most recent call last):
    ...
    classnorm.errors.ConfigError: epochs is 0; it must be at least 1
    """
    rules = [(name, "be positive", math.ulp(0.0), math.inf) for name in positive]
    rules += [(name, f"be at least {low:g}", low, math.inf) for name, low in (at_least or {}).items()]
    rules += [(name, f"lie between {low:g} and {high:g}", low, high) for name, (low, high) in (between or {}).items()]
    for name, rule, low, high in rules:
        value = getattr(config, name)
        if not (math.isfinite(value) and low <= value <= high):
            raise ConfigError(f"{name} is {value}; it must {rule}")
