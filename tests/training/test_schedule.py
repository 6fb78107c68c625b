"""Learning rates and optimizers against their formulas."""

import math

import pytest
import torch
from torch import nn

from classnorm.errors import ConfigError
from classnorm.training import TrainingConfig, learning_rate, make_optimizer


def test_the_step_schedule_drops_at_the_configured_share_of_training():
    config = TrainingConfig(lr=0.3, lr_drop=0.1, lr_drop_at=0.25)
    rates = [learning_rate(config, step, 100) for step in range(100)]
    assert rates[:25] == [0.3] * 25
    assert rates[25:] == pytest.approx([0.03] * 75)


def test_the_steps_schedule_drops_each_time_the_share_has_passed():
    config = TrainingConfig(lr=0.8, schedule="steps", lr_drop=0.5, lr_drop_at=0.15)
    rates = [learning_rate(config, step, 200) for step in range(200)]
    assert rates == [0.8 * 0.5 ** (step // 30) for step in range(200)]


def test_the_cosine_schedule_starts_at_lr_halves_in_the_middle_and_ends_near_zero():
    config = TrainingConfig(lr=2.0, schedule="cosine")
    rates = [learning_rate(config, step, 1000) for step in range(1000)]
    assert rates[0] == 2.0
    assert rates[500] == pytest.approx(1.0)
    assert rates[999] == pytest.approx(1.0 + math.cos(math.pi * 0.999), abs=1e-9)
    assert all(later < earlier for earlier, later in zip(rates, rates[1:], strict=False))


def test_the_inverse_schedule_is_an_eighth_after_1500_steps_however_long_training_is():
    config = TrainingConfig(lr=2.0, schedule="inverse")
    for total in (2_000, 100_000):
        assert [learning_rate(config, step, total) for step in (0, 1500)] == pytest.approx([2.0, 0.25])  # 16^(3/4) = 8


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_the_fused_optimizer_takes_the_step_that_the_textbook_formula_takes(name):
    weights = torch.tensor([1.0, -2.0, 3.0])
    gradient = torch.tensor([0.5, -0.1, 0.2])
    config = TrainingConfig(optimizer=name, lr=0.01, weight_decay=0.1, momentum=0.9)
    parameter = nn.Parameter(weights.clone())
    optimizer = make_optimizer([parameter], config, torch.device("cpu"))
    parameter.grad = gradient.clone()
    optimizer.step()
    if name == "adamw":
        expected = weights * (1 - 0.01 * 0.1) - 0.01 * gradient.sign()  # first Adam step: m̂/√v̂ = sign(g)
    else:
        decayed = gradient + 0.1 * weights
        expected = weights - 0.01 * (decayed if name == "sgd" else decayed.sign())
    torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"lr": 0.0},
        {"lr": math.nan},
        {"weight_decay": -1.0},
        {"grad_clip": -1.0},
        {"lr_drop_at": 0.0, "schedule": "steps"},
    ],
)
def test_invalid_settings_are_refused_by_name(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        TrainingConfig(**change)
