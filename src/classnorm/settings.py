"""What all configs share: range checks with one wording, and settings as they are stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from classnorm.errors import ConfigError

_LARGEST = 1e100  # of any setting
_LARGEST_SEED = 2**63 - 1
_AT_MOST = {
    "layers": 100,
    **dict.fromkeys(("hidden", "critic_hidden", "relation_hidden", "dimensions", "channels"), 1 << 15),
    **dict.fromkeys(("epochs", "classifier_epochs", "virtual_classes", "landmarks", "synthesized"), 10**6),
    **dict.fromkeys(("critic_steps", "refine_steps", "steps", "memory_per_class"), 10**6),
    "validation_splits": 1000,
}
"""Sizes beyond which a setting is a mistake: training would not end, or not fit into memory."""


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
    rules = [(name, "be positive", math.ulp(0.0), _LARGEST) for name in positive]
    rules += [(name, f"be at least {low:g}", low, _LARGEST) for name, low in (at_least or {}).items()]
    rules += [
        (name, f"be at most {high:,}", -_LARGEST, high) for name, high in _AT_MOST.items() if hasattr(config, name)
    ]
    rules += [(name, f"lie between {low:g} and {high:g}", low, high) for name, (low, high) in (between or {}).items()]
    for name, rule, low, high in rules:
        value = getattr(config, name)
        if not low <= value <= high:  # nor is NaN
            raise ConfigError(f"{name} is {str(value)[:30]}; it must {rule}")


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
