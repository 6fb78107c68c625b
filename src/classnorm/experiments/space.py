"""Search spaces: which settings of a method vary, and between what."""

from __future__ import annotations

import itertools
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from classnorm.errors import ConfigError, unknown_name
from classnorm.methods import MethodConfig

__all__ = ["DEFAULT_SPACES", "Choice", "Range", "Space", "grid", "parse_space"]


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]

    def __contains__(self, value: Any) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Range:
    """Any number between two, evenly or evenly in the logarithm."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


Space = Mapping[str, Choice | Range]


_RANKING: dict[str, Space] = {
    "grid": {
        "lr": Choice((1e-3, 3e-3)),
        "margin": Choice((0.3, 1.0)),
        "epochs": Choice((25, 50)),
    },
    "tpe": {
        "lr": Range(3e-4, 1e-2, log=True),
        "margin": Range(0.1, 3.0, log=True),
        "epochs": Range(10, 100, log=True, whole=True),
        "weight_decay": Range(1e-6, 1e-3, log=True),
    },
}

DEFAULT_SPACES: dict[str, dict[str, Space]] = {
    "classnorm": {
        "grid": {  # the values of the paper's hyperparameter table
            "lr": Choice((5e-4, 2e-3, 5e-3)),
            "hidden": Choice((512, 1024, 2048)),
            "batch_size": Choice((128, 512)),
        },
        "tpe": {
            "lr": Range(1e-4, 5e-3, log=True),
            "hidden": Choice((512, 1024, 2048)),
            "batch_size": Choice((64, 128, 256, 512)),
            "epochs": Range(5, 50, log=True, whole=True),
            "gamma": Range(3.0, 8.0),
            "weight_decay": Range(1e-6, 1e-3, log=True),
            "entropy_weight": Choice((0.0, 1e-3)),
        },
    },
    "relationnet": {
        "grid": {
            "lr": Choice((3e-4, 1e-3)),
            "epochs": Choice((4, 8)),
            "class_norm": Choice((False, True)),
        },
        "tpe": {
            "lr": Range(1e-4, 2e-3, log=True),
            "epochs": Range(4, 16, log=True, whole=True),
            "class_norm": Choice((False, True)),
            "weight_decay": Range(1e-6, 1e-3, log=True),
        },
    },
    "cvc": {
        "grid": {
            "lr": Choice((5e-4, 1e-3)),
            "epochs": Choice((20, 40)),
            "class_norm": Choice((False, True)),
        },
        "tpe": {
            "lr": Range(2e-4, 2e-3, log=True),
            "epochs": Range(15, 60, log=True, whole=True),
            "class_norm": Choice((False, True)),
            "weight_decay": Range(1e-6, 1e-3, log=True),
        },
    },
    "dem": {
        "grid": {
            "lr": Choice((5e-4, 2e-3)),
            "weight_decay": Choice((1e-5, 1e-4)),
            "epochs": Choice((20, 40)),
        },
        "tpe": {
            "lr": Range(2e-4, 5e-3, log=True),
            "weight_decay": Range(1e-6, 1e-3, log=True),
            "epochs": Range(10, 60, log=True, whole=True),
            "hidden": Choice((600, 1200, 2400)),
        },
    },
    "devise": _RANKING,
    "ale": _RANKING,
    "sje": _RANKING,
    "eszsl": {
        "grid": {  # part of the publication's grid of powers of ten
            "feature_penalty": Choice((1e2, 1e3, 1e4)),
            "descriptor_penalty": Choice((1.0, 10.0, 100.0)),
        },
        "tpe": {
            "feature_penalty": Range(1e2, 1e5, log=True),
            "descriptor_penalty": Range(1.0, 1e3, log=True),
        },
    },
    "sae": {
        "grid": {
            "encoder_weight": Choice((0.03, 0.1, 0.3, 1.0)),
            "attribute_normalization": Choice(("unit", "standardize")),
        },
        "tpe": {
            "encoder_weight": Range(3e-3, 3.0, log=True),
            "attribute_normalization": Choice(("unit", "standardize")),
        },
    },
    "conse": {
        "grid": {"top": Choice((1, 5, 10, 20)), "epochs": Choice((10, 30))},
        "tpe": {
            "top": Range(2, 50, log=True, whole=True),
            "epochs": Range(5, 50, log=True, whole=True),
            "lr": Range(2e-4, 5e-3, log=True),
        },
    },
    "sync": {
        "grid": {"sigma": Choice((0.5, 1.0, 2.0)), "penalty": Choice((1e-4, 3e-4, 1e-3))},
        "tpe": {"sigma": Range(0.5, 4.0, log=True), "penalty": Range(3e-5, 3e-3, log=True)},
    },
    "kernel": {
        "grid": {
            "whitening": Choice((0.2, 0.35, 0.5)),
            "ridge": Choice((0.03, 0.1, 0.3)),
        },
        "tpe": {
            "power": Range(0.3, 1.0),
            "whitening": Range(0.0, 0.6),
            "shrinkage": Range(0.05, 0.6),
            "within": Range(0.0, 1.0),
            "spread": Range(0.0, 0.6),
            "bandwidth": Range(0.5, 4.0, log=True),
            "ridge": Range(0.02, 1.0, log=True),
            "length": Range(1.0, 1.6),
            "epochs": Range(1, 8, whole=True),
        },
    },
    "fclswgan": {
        "grid": {
            "lr": Choice((1e-4, 3e-4)),
            "classification_weight": Choice((0.01, 0.1, 1.0)),
            "synthesized": Choice((100, 300)),
        },
        "tpe": {
            "lr": Range(5e-5, 2e-3, log=True),
            "epochs": Range(2, 20, log=True, whole=True),
            "hidden": Choice((512, 1024, 2048)),
            "batch_size": Choice((64, 128, 256)),
            "classification_weight": Range(1e-2, 10.0, log=True),
            "synthesized": Range(50, 600, log=True, whole=True),
        },
    },
}
"""What `search` varies if it is not told: method → sampler → space."""


def grid(space: Space) -> list[dict[str, Any]]:
    """All combinations of a space of choices, the last setting varying fastest.

    >>> grid({"lr": Choice((0.1, 0.2)), "layers": Choice((1, 2))})[1]
    {'lr': 0.1, 'layers': 2}
    """
    ranges = [name for name, values in space.items() if isinstance(values, Range)]
    if ranges:
        raise ConfigError(f"a grid needs values to choose from; write {ranges[0]}=a,b,c instead of a range")
    choices = [values.values for values in space.values() if isinstance(values, Choice)]
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*choices)]


def parse_space(texts: Sequence[str], config: MethodConfig) -> dict[str, Choice | Range]:
    """From `hidden=512,1024`, `gamma=3..10` or `lr=1e-4..1e-2:log`.

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
            raise ConfigError(f"--space {text!r} is not understood; write FIELD=a,b,c or FIELD=low..high[:log]")
        if name not in hints:
            raise unknown_name("setting", name, hints)
        space[name] = (
            _range(name, values, hints[name]) if ".." in values else _choice(name, values, hints[name], config)
        )
    return space


def _range(name: str, text: str, hint: Any) -> Range:
    bounds, _, suffix = text.partition(":")
    low, _, high = bounds.partition("..")
    try:
        numbers = float(low), float(high)
    except ValueError:
        numbers = (1.0, 0.0)
    log = suffix == "log"
    is_number = hint in (int, float) or float in typing.get_args(hint)
    if not is_number or suffix not in ("", "log") or not numbers[0] < numbers[1] or (log and numbers[0] <= 0):
        raise ConfigError(f"--space {name}={text} is not a range of numbers; write {name}=low..high or low..high:log")
    return Range(numbers[0], numbers[1], log, whole=hint is int)


def _choice(name: str, text: str, hint: Any, config: MethodConfig) -> Choice:
    values = tuple(_value(item.strip(), hint) for item in text.split(","))
    for value in values:
        config.replace(**{name: value})  # raises if the setting cannot have this value
    return Choice(values)


def _value(text: str, hint: Any) -> Any:
    """The text as what the setting is: a whole number, a number, a truth value, or the text itself."""
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    for kind in (int, float) if hint is not str else ():
        try:
            number = kind(text)
        except ValueError:
            continue
        return float(number) if hint is not int else number
    return text
