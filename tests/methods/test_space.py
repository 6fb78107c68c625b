"""Search spaces as a user writes them."""

import pytest

from classnorm.errors import ConfigError
from classnorm.methods import METHODS, Choice, ClassNormConfig, Range
from classnorm.methods.space import grid, parse_space

BASE = ClassNormConfig()


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("hidden=512,1024", "hidden", Choice((512, 1024))),
        ("lr=5e-4,2e-3", "lr", Choice((5e-4, 2e-3))),
        ("gamma=3..10", "gamma", Range(3.0, 10.0)),
        ("gamma=5,auto", "gamma", Choice((5.0, "auto"))),
        ("lr=1e-4..1e-2:log", "lr", Range(1e-4, 1e-2, log=True)),
        ("epochs=5..50", "epochs", Range(5.0, 50.0, whole=True)),
        ("final-relu=true,False", "final_relu", Choice((True, False))),
        ("init=proper,xavier", "init", Choice(("proper", "xavier"))),
    ],
)
def test_a_setting_is_read_as_what_it_is(text, name, expected):
    assert parse_space([text], BASE) == {name: expected}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hiden=1,2", "did you mean 'hidden'"),
        ("hidden", "not understood"),
        ("hidden=", "not understood"),
        ("hidden=big,small", "hidden cannot be"),
        ("init=propper", "did you mean 'proper'"),
        ("lr=1e-2..1e-4", "not a range"),
        ("lr=0..1:log", "not a range"),
        ("lr=0..1:cubic", "not a range"),
        ("init=a..b", "not a range"),
    ],
)
def test_a_space_that_cannot_work_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_space([text], BASE)


def test_a_grid_has_every_combination_once():
    combinations = grid({"lr": Choice((1.0, 2.0)), "hidden": Choice((3, 4, 5))})
    assert len(combinations) == 6
    assert {(c["lr"], c["hidden"]) for c in combinations} == {(a, b) for a in (1.0, 2.0) for b in (3, 4, 5)}


def test_a_grid_over_a_range_is_refused():
    with pytest.raises(ConfigError, match="lr=a,b,c"):
        grid({"lr": Range(0.1, 1.0)})


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_spaces_of_its_own_settings(method):
    for space in (METHODS[method].space, METHODS[method].search_space("grid")):
        for name, values in space.items():
            for value in values.values if isinstance(values, Choice) else (values.low, values.high):
                METHODS[method].config().replace(**{name: int(value) if getattr(values, "whole", False) else value})
