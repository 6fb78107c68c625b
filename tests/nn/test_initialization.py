"""Each initialisation has the variance it promises.

A sample variance of N weights has the relative standard error √((kurtosis − 1)/N); the kurtosis of a uniform
distribution is 9/5, of a normal one 3. The tests allow five of these.
"""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import nn

from classnorm.errors import ConfigError
from classnorm.nn import Distribution, Initialization, initialize_, proper_variance_, weight_variance

D_IN, D_OUT = 300, 500
KURTOSIS = {"uniform": 9 / 5, "normal": 3.0}
VARIANCE = {  # by hand, for 300 inputs and 500 outputs
    "proper": 1 / 150_000,
    "xavier": 1 / 400,
    "xavier_fan_out": 1 / 500,
    "kaiming_fan_in": 1 / 150,
    "kaiming_fan_out": 1 / 250,
}
DISTRIBUTIONS = get_args(Distribution)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def relative_error(weights: torch.Tensor, variance: float) -> float:
    return abs(weights.double().var().item() / variance - 1)


def tolerance(distribution: Distribution, n_weights: int = D_IN * D_OUT) -> float:
    return 5 * math.sqrt((KURTOSIS[distribution] - 1) / n_weights)


@pytest.mark.parametrize("scheme", VARIANCE)
def test_weight_variance_follows_the_formula(scheme):
    assert weight_variance(scheme, D_IN, D_OUT) == pytest.approx(VARIANCE[scheme])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("scheme", VARIANCE)
def test_drawn_weights_have_the_variance_of_their_scheme(scheme, distribution):
    layer = initialize_(nn.Linear(D_IN, D_OUT), scheme, distribution, generator())
    assert relative_error(layer.weight, VARIANCE[scheme]) < tolerance(distribution)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("scheme", VARIANCE)
def test_drawn_weights_are_centred(scheme, distribution):
    layer = initialize_(nn.Linear(D_IN, D_OUT), scheme, distribution, generator())
    assert abs(layer.weight.double().mean().item()) < 5 * math.sqrt(VARIANCE[scheme] / (D_IN * D_OUT))


@pytest.mark.parametrize("scheme", VARIANCE)
def test_uniform_weights_fill_plus_minus_the_root_of_3_variances(scheme):
    layer = initialize_(nn.Linear(D_IN, D_OUT), scheme, "uniform", generator())
    bound = math.sqrt(3 * VARIANCE[scheme])
    # The chance that none of 150,000 weights lies in the outer 0.1 % is e^−150.
    assert 0.999 * bound < layer.weight.abs().max().item() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("scheme", VARIANCE)
def test_normal_weights_have_the_share_beyond_2_sigma_of_a_normal_distribution(scheme):
    layer = initialize_(nn.Linear(D_IN, D_OUT), scheme, "normal", generator())
    share = (layer.weight.abs() > 2 * math.sqrt(VARIANCE[scheme])).double().mean().item()
    expected = math.erfc(math.sqrt(2))
    assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / (D_IN * D_OUT))


@pytest.mark.parametrize("scheme", [*VARIANCE, "data_dependent"])
def test_the_bias_starts_at_zero(scheme):
    layer = initialize_(nn.Linear(4, 3), scheme, inputs=torch.ones(2, 4), generator=generator())
    assert layer.bias.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("scheme", get_args(Initialization))
def test_a_layer_without_bias_can_be_initialised(scheme):
    layer = initialize_(nn.Linear(4, 3, bias=False), scheme, inputs=torch.ones(2, 4), generator=generator())
    assert layer.bias is None and layer.weight.isfinite().all()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_torch_scheme_draws_what_a_new_linear_layer_draws(distribution):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        fresh = nn.Linear(7, 11)
    layer = initialize_(nn.Linear(7, 11), "torch", distribution, generator(5))
    torch.testing.assert_close(layer.weight, fresh.weight)
    torch.testing.assert_close(layer.bias, fresh.bias)


def test_the_variance_of_the_torch_scheme_is_that_of_a_new_linear_layer():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        fresh = nn.Linear(D_IN, D_OUT)
    assert relative_error(fresh.weight, weight_variance("torch", D_IN, D_OUT)) < tolerance("uniform")


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_equation_8_data_dependent_weights_have_variance_1_over_outputs_times_mean_squared_norm(distribution):
    inputs = 1.0 + 4.0 * torch.rand(20, D_IN, generator=generator(1))
    layer = initialize_(nn.Linear(D_IN, D_OUT), "data_dependent", distribution, generator(), inputs)
    mean_square_norm = sum(math.hypot(*row) ** 2 for row in inputs.tolist()) / len(inputs)
    assert relative_error(layer.weight, 1 / (D_OUT * mean_square_norm)) < tolerance(distribution)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_data_dependent_outputs_have_variance_1_over_the_number_of_outputs(distribution):
    """With one input vector the outputs are independent; a uniform weight's fourth moment is below a normal one's."""
    inputs = 1.0 + 4.0 * torch.rand(1, 50, generator=generator(1))
    layer = initialize_(nn.Linear(50, 40_000), "data_dependent", distribution, generator(), inputs)
    assert relative_error(layer(inputs), 1 / 40_000) < tolerance("normal", 40_000)


@pytest.mark.parametrize(
    "inputs", [None, torch.zeros(3, 4), torch.full((3, 4), torch.inf)], ids=["no", "zero", "infinite"]
)
def test_data_dependent_needs_inputs_with_a_norm(inputs):
    with pytest.raises(ConfigError, match="non-zero norm"):
        initialize_(nn.Linear(4, 3), "data_dependent", inputs=inputs)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_equation_10_proper_variance_is_1_over_outputs_times_inputs(distribution):
    layer = proper_variance_(nn.Linear(D_IN, D_OUT), distribution, generator())
    assert relative_error(layer.weight, 1 / (D_IN * D_OUT)) < tolerance(distribution)


def test_weights_can_be_trained_after_initialisation():
    layer = proper_variance_(nn.Linear(4, 3))
    layer(torch.ones(1, 4)).sum().backward()
    assert layer.weight.requires_grad and layer.weight.grad is not None
