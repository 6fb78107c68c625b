"""The attribute embedder: its structure, its initial weights, and statements 2 and 3 by simulation.

The simulations draw R independent embedders; each gives one estimate of Var[z·p], and the mean of the R estimates may
be five of its standard errors away from the statement. A bound on the standard error keeps the tests sharp.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from classnorm.errors import ConfigError
from classnorm.nn import AttributeEmbedder, ClassStandardization, DynamicNormalization, dot_logits

D_A, D_Z, HIDDEN = 12, 64, 96


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=generator(seed))


def correlated(n: int, d: int, seed: int = 0) -> torch.Tensor:
    """Descriptors as they really are: non-negative, of unequal scale, depending on each other."""
    factors = torch.rand(n, 3, generator=generator(seed))
    return factors @ (5.0 * torch.rand(3, d, generator=generator(seed + 1)).square())


def linear_layers(embedder: AttributeEmbedder) -> list[nn.Linear]:
    return [module for module in embedder.modules() if isinstance(module, nn.Linear)]


def structure(embedder: AttributeEmbedder) -> list[type[nn.Module]]:
    return [type(block) for block in [*embedder.body, embedder.output]]


# Structure

BARE = {  # linear and ReLU alone
    1: [nn.Linear],
    2: [nn.Linear, nn.ReLU, nn.Linear],
    3: [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear],
    4: [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear],
}


@pytest.mark.parametrize("layers", BARE)
def test_without_normalization_linear_layers_alternate_with_relu(layers):
    assert structure(AttributeEmbedder(4, 5, layers=layers, hidden=6, normalization="none")) == BARE[layers]


@pytest.mark.parametrize("normalization", ["class", "class-variance"])
def test_a_linear_embedder_has_no_standardization(normalization):
    assert structure(AttributeEmbedder(4, 5, layers=1, normalization=normalization)) == BARE[1]


@pytest.mark.parametrize("normalization", ["class", "class-variance"])
def test_two_layers_standardize_before_the_last_one(normalization):
    embedder = AttributeEmbedder(4, 5, layers=2, hidden=6, normalization=normalization)
    assert structure(embedder) == [*BARE[2][:-1], ClassStandardization, nn.Linear]


@pytest.mark.parametrize("layers", [3, 4])
@pytest.mark.parametrize("normalization", ["class", "class-variance"])
def test_deep_embedders_standardize_before_and_after_the_last_hidden_relu(normalization, layers):
    embedder = AttributeEmbedder(4, 5, layers=layers, hidden=6, normalization=normalization)
    ending = [ClassStandardization, nn.ReLU, ClassStandardization, nn.Linear]
    assert structure(embedder) == [*BARE[layers][:-2], *ending]


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_standardization_before_relu_can_be_turned_off(layers):
    embedder = AttributeEmbedder(4, 5, layers=layers, hidden=6, standardize_before_relu=False)
    assert structure(embedder) == [*BARE[layers][:-1], ClassStandardization, nn.Linear]


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_dynamic_normalization_stands_before_the_last_layer_only(layers):
    embedder = AttributeEmbedder(4, 5, layers=layers, hidden=6, normalization="dynamic")
    assert structure(embedder) == [*BARE[layers][:-1], DynamicNormalization, nn.Linear]


@pytest.mark.parametrize(("normalization", "divide_by"), [("class", "std"), ("class-variance", "variance")])
def test_the_kind_of_class_normalization_decides_what_to_divide_by(normalization, divide_by):
    embedder = AttributeEmbedder(4, 5, hidden=6, normalization=normalization)
    assert {s.divide_by for s in embedder.modules() if isinstance(s, ClassStandardization)} == {divide_by}


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_layers_have_the_hidden_width_between_descriptor_and_feature_dimension(layers):
    embedder = AttributeEmbedder(4, 5, layers=layers, hidden=6)
    widths = [4, *[6] * (layers - 1), 5]
    assert [(layer.in_features, layer.out_features) for layer in linear_layers(embedder)] == [
        *zip(widths[:-1], widths[1:], strict=True)
    ]


# Forward


def test_the_default_embedder_computes_the_formula_of_the_paper():
    descriptors = gaussian(7, 4).double()
    embedder = AttributeEmbedder(4, 5, hidden=6).double()
    (w1, b1), (w2, b2), (v, b) = [
        (layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in linear_layers(embedder)
    ]

    def standardized(x: np.ndarray) -> np.ndarray:
        return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)

    a = descriptors.numpy()
    a = math.sqrt(4) * a / np.linalg.norm(a, axis=1, keepdims=True)
    h = np.maximum(a @ w1.T + b1, 0)
    h = standardized(np.maximum(standardized(h @ w2.T + b2), 0))
    expected = np.maximum(h @ v.T + b, 0)
    np.testing.assert_allclose(embedder(descriptors).detach().numpy(), expected, atol=1e-12)


def test_the_final_relu_cuts_off_what_is_negative_without_it():
    descriptors = gaussian(7, 4)
    cut = AttributeEmbedder(4, 5, hidden=6, final_relu=True)(descriptors)
    free = AttributeEmbedder(4, 5, hidden=6, final_relu=False)(descriptors)
    assert free.min() < 0 and cut.equal(free.clamp(min=0))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("normalization", ["class", "class-variance", "dynamic", "none"])
def test_descriptors_are_not_changed_in_place(normalization, layers):
    descriptors = gaussian(7, 4)
    before = descriptors.clone()
    embedder = AttributeEmbedder(
        4,
        5,
        layers=layers,
        hidden=6,
        normalization=normalization,
        attribute_normalization="none",
        descriptors=descriptors,
    )
    embedder(descriptors)
    assert descriptors.equal(before)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("normalization", ["class", "class-variance", "dynamic", "none"])
def test_gradients_reach_every_weight(normalization, layers):
    embedder = AttributeEmbedder(4, 5, layers=layers, hidden=6, normalization=normalization)
    embedder(gaussian(7, 4)).square().sum().backward()
    assert all(layer.weight.grad.abs().sum() > 0 for layer in linear_layers(embedder))


@pytest.mark.parametrize("normalization", ["class", "class-variance", "dynamic", "none"])
def test_gradients_agree_with_finite_differences(normalization):
    embedder = AttributeEmbedder(4, 5, hidden=6, normalization=normalization, final_relu=False).double()
    assert torch.autograd.gradcheck(embedder, gaussian(7, 4).double().requires_grad_())


@pytest.mark.parametrize("normalization", ["class", "class-variance", "dynamic", "none"])
def test_evaluation_embeds_a_class_the_same_whatever_the_other_classes(normalization):
    embedder = AttributeEmbedder(4, 5, hidden=6, normalization=normalization)
    embedder(gaussian(7, 4))
    embedder.eval()
    classes = gaussian(3, 4, seed=1)
    torch.testing.assert_close(torch.cat([embedder(one) for one in classes.split(1)]), embedder(classes))


def test_standardized_descriptors_use_the_training_classes():
    train, unseen = 5.0 + 2.0 * gaussian(30, 4), gaussian(3, 4, seed=1)
    embedder = AttributeEmbedder(4, 5, hidden=6, attribute_normalization="standardize", descriptors=train).eval()
    plain = AttributeEmbedder(4, 5, hidden=6, attribute_normalization="none").eval()
    by_hand = (unseen - train.mean(dim=0)) / train.std(dim=0, correction=0)
    torch.testing.assert_close(embedder(unseen), plain(by_hand))


# Errors


def test_zero_layers_are_refused():
    with pytest.raises(ConfigError, match="at least 1 layer"):
        AttributeEmbedder(4, 5, layers=0)


def test_zero_hidden_units_are_refused():
    with pytest.raises(ConfigError, match="1 hidden unit"):
        AttributeEmbedder(4, 5, hidden=0)


@pytest.mark.parametrize(
    "settings",
    [{"attribute_normalization": "standardize"}, {"init": "data_dependent"}, {"hidden_init": "data_dependent"}],
    ids=str,
)
def test_settings_that_need_the_training_descriptors_say_so(settings):
    with pytest.raises(ConfigError, match="need the training descriptors"):
        AttributeEmbedder(4, 5, hidden=6, **settings)


# Initial weights


def test_the_same_seed_gives_the_same_weights():
    one, other = AttributeEmbedder(4, 5, hidden=6, seed=3), AttributeEmbedder(4, 5, hidden=6, seed=3)
    assert all(a.equal(b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_another_seed_gives_other_weights_in_every_layer():
    one, other = AttributeEmbedder(4, 5, hidden=6, seed=3), AttributeEmbedder(4, 5, hidden=6, seed=4)
    pairs = zip(linear_layers(one), linear_layers(other), strict=True)
    assert not any(a.weight.equal(b.weight) for a, b in pairs)


def uniform_variance(layer: nn.Linear) -> float:
    """Read off the range, ±√(3·Var), which thousands of weights fill to better than 1 % (2 % in the variance)."""
    return layer.weight.abs().max().item() ** 2 / 3


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_last_layer_starts_with_proper_variance(layers):
    layer = AttributeEmbedder(D_A, D_Z, layers=layers, hidden=HIDDEN).output
    assert uniform_variance(layer) == pytest.approx(1 / (layer.in_features * D_Z), rel=0.02)


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_the_layers_before_it_start_as_pytorch_would(layers):
    *hidden, _ = linear_layers(AttributeEmbedder(D_A, D_Z, layers=layers, hidden=HIDDEN))
    expected = [1 / (3 * layer.in_features) for layer in hidden]
    assert [uniform_variance(layer) for layer in hidden] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("init", ["proper", "xavier_fan_out", "kaiming_fan_in"])
def test_attribute_correction_gives_the_first_layer_variance_1_over_outputs_times_descriptor_dimension(init, layers):
    embedder = AttributeEmbedder(D_A, D_Z, layers=layers, hidden=HIDDEN, init=init, attribute_correction=True)
    first = linear_layers(embedder)[0]
    assert uniform_variance(first) == pytest.approx(1 / (first.out_features * D_A), rel=0.02)


@pytest.mark.parametrize("layers", [2, 3])
def test_attribute_correction_leaves_the_other_layers_alone(layers):
    _, *corrected = linear_layers(AttributeEmbedder(D_A, D_Z, layers=layers, hidden=HIDDEN, attribute_correction=True))
    _, *plain = linear_layers(AttributeEmbedder(D_A, D_Z, layers=layers, hidden=HIDDEN))
    variances = [uniform_variance(layer) for layer in plain]
    assert [uniform_variance(layer) for layer in corrected] == pytest.approx(variances, rel=0.02)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("normalization", ["class", "none"])
def test_data_dependent_initialisation_looks_at_what_the_last_layer_gets(normalization, layers):
    train = correlated(40, D_A)
    embedder = AttributeEmbedder(
        D_A, D_Z, layers=layers, hidden=HIDDEN, normalization=normalization, init="data_dependent", descriptors=train
    )
    hidden = embedder.body(embedder.normalize(train))
    mean_square_norm = sum(math.hypot(*row) ** 2 for row in hidden.tolist()) / len(hidden)
    assert uniform_variance(embedder.output) == pytest.approx(1 / (D_Z * mean_square_norm), rel=0.02)


def test_data_dependent_initialisation_leaves_no_trace_in_the_running_statistics():
    embedder = AttributeEmbedder(4, 5, hidden=6, init="data_dependent", descriptors=gaussian(20, 4))
    standardizations = [s for s in embedder.modules() if isinstance(s, ClassStandardization)]
    assert all((s.running_mean == 0).all() and (s.running_var == 1).all() for s in standardizations)


# Statements 2 and 3

FEATURE_VARIANCE = 2.5


def simulated_variance(descriptors: torch.Tensor, d_z: int, repeats: int, **settings) -> tuple[float, float]:
    """Var[z·p] over features, classes and initial weights, and its standard error, in units of Var z."""
    estimates = []
    for seed in range(repeats):
        embedder = AttributeEmbedder(descriptors.shape[1], d_z, final_relu=False, seed=seed, **settings)
        features = math.sqrt(FEATURE_VARIANCE) * gaussian(200, d_z, seed=1000 + seed)
        pre_logits = dot_logits(features, embedder(descriptors))
        estimates.append(pre_logits.square().mean().item() / FEATURE_VARIANCE)
    return float(np.mean(estimates)), float(np.std(estimates, ddof=1) / math.sqrt(repeats))


@pytest.mark.parametrize("init_distribution", ["uniform", "normal"])
def test_statement_2_a_linear_embedder_of_unit_descriptors_keeps_the_variance(init_distribution):
    variance, standard_error = simulated_variance(
        correlated(30, D_A),
        d_z=256,
        repeats=60,
        layers=1,
        attribute_normalization="unit-plain",
        init="xavier_fan_out",
        init_distribution=init_distribution,
    )
    assert standard_error < 0.02
    assert abs(variance - 1) < 5 * standard_error


def test_statement_2_needs_the_unit_norm():
    descriptors = correlated(30, D_A)
    variance, standard_error = simulated_variance(
        descriptors, d_z=256, repeats=60, layers=1, attribute_normalization="none", init="xavier_fan_out"
    )
    mean_square_norm = descriptors.square().sum(dim=1).mean().item()  # equation 6
    assert mean_square_norm > 2
    assert abs(variance - mean_square_norm) < 5 * standard_error


@pytest.mark.parametrize("init_distribution", ["uniform", "normal"])
@pytest.mark.parametrize("layers", [2, 3])
def test_statement_3_class_normalization_with_proper_initialisation_keeps_the_variance(layers, init_distribution):
    variance, standard_error = simulated_variance(
        gaussian(100, D_A), d_z=256, repeats=30, layers=layers, hidden=HIDDEN, init_distribution=init_distribution
    )
    assert standard_error < 0.02
    assert abs(variance - 1) < 5 * standard_error + 1e-3  # ε = 1e-5 against hidden variances of 0.1 and more


@pytest.mark.parametrize("layers", [2, 3])
def test_statement_3_needs_the_standardization(layers):
    variance, standard_error = simulated_variance(
        gaussian(100, D_A), d_z=256, repeats=30, layers=layers, hidden=HIDDEN, normalization="none"
    )
    assert variance + 5 * standard_error < 0.5


@pytest.mark.parametrize("layers", [2, 3])
def test_statement_3_needs_the_proper_initialisation(layers):
    variance, standard_error = simulated_variance(
        gaussian(100, D_A), d_z=256, repeats=30, layers=layers, hidden=HIDDEN, init="xavier_fan_out"
    )
    assert variance - 5 * standard_error > HIDDEN / 2


@pytest.mark.parametrize("layers", [2, 3])
def test_unit_descriptors_do_not_keep_the_variance_of_a_deep_embedder(layers):
    variance, standard_error = simulated_variance(
        gaussian(100, D_A),
        d_z=256,
        repeats=30,
        layers=layers,
        hidden=HIDDEN,
        attribute_normalization="unit-plain",
        normalization="none",
        init="xavier_fan_out",
    )
    assert abs(variance - 1) > 0.2 + 5 * standard_error
