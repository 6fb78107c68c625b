"""Configs are valid or do not exist."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from classnorm.errors import ConfigError
from classnorm.settings import Config, NotNegative, Positive, Share, Steps, at_least, at_most


@dataclass(frozen=True, kw_only=True)
class Example(Config):
    lr: Positive = 0.1
    epochs: Steps = 1
    decay: NotNegative = 0.0
    share: Share = 1.0
    classes: Annotated[int | Literal["auto"], at_least(0), at_most(30_000)] = "auto"


@dataclass(frozen=True, kw_only=True)
class LongExample(Example):
    epochs: int = 100


@pytest.mark.parametrize("change", [{}, {"lr": 5e-324}, {"epochs": 10**6}, {"share": 0}, {"classes": 0}])
def test_values_in_range_pass(change):
    assert {name: getattr(Example(**change), name) for name in change} == change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.0}, "lr is 0.0; it must be positive"),
        ({"lr": -1.0}, "lr is -1.0; it must be positive"),
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"decay": -0.5}, "decay is -0.5; it must be at least 0"),
        ({"share": 1.5}, "share is 1.5; it must lie between 0 and 1"),
        ({"epochs": 10**19}, "epochs is 10000000000000000000; it must be at most 1,000,000"),
        ({"epochs": 10**7}, "epochs is 10000000; it must be at most 1,000,000"),
        ({"share": -0.1}, "share is -0.1; it must lie between 0 and 1"),
        ({"classes": -1}, "classes is -1; it must be at least 0"),
        ({"classes": 30_001}, "classes is 30001; it must be at most 30,000"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name_and_limit(change, message):
    for make in (lambda: Example(**change), lambda: Example().replace(**change), lambda: LongExample(**change)):
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value) == message


@pytest.mark.parametrize("name", ["lr", "epochs", "decay", "share", "classes"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused_by_every_rule(name, value):
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        Example(**{name: value})
