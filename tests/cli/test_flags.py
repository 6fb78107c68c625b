"""Settings in messages of the library become flags on the command line."""

from __future__ import annotations

import pytest

from classnorm.cli.flags import as_flags


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("lower `lr`", "lower --lr"),
        ("leave out `hold_out`", "leave out --hold-out"),
        ("use `features='vit'` or `features=\"res101\"`", "use --features vit or --features res101"),
        ("use `gamma=13.3`", "use --gamma 13.3"),
        ("use `class_norm=True` or `final_relu=False`", "use --class-norm or --no-final-relu"),
        ('use `template="a photo of a {}"`', 'use --template "a photo of a {}"'),
        ("run `classnorm describe`; see `att_splits.mat`, `fit(X, y)`", None),
    ],
)
def test_only_settings_in_backticks_become_flags(message, expected):
    assert as_flags(message) == (message if expected is None else expected)
