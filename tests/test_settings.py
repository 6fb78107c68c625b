"""Range checks of settings."""

import math
from types import SimpleNamespace

import pytest

from classnorm.errors import ConfigError
from classnorm.settings import require

LIMITS = {"positive": ["lr"], "at_least": {"epochs": 1, "decay": 0}, "between": {"share": (0, 1)}}
VALID = {"lr": 0.1, "epochs": 1, "decay": 0.0, "share": 1.0}


@pytest.mark.parametrize("change", [{}, {"lr": 5e-324}, {"epochs": 10**6}, {"share": 0}])
def test_values_in_range_pass(change):
    require(SimpleNamespace(**(VALID | change)), **LIMITS)


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
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name_and_limit(change, message):
    with pytest.raises(ConfigError) as caught:
        require(SimpleNamespace(**(VALID | change)), **LIMITS)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused_by_every_rule(name, value):
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        require(SimpleNamespace(**(VALID | {name: value})), **LIMITS)
