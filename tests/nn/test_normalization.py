"""Attribute normalization, class standardization and dynamic normalization."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from classnorm.errors import ConfigError
from classnorm.nn import AttributeNormalization, ClassStandardization, DynamicNormalization

DIVISORS: list[Literal["std", "variance"]] = ["std", "variance"]
SHAPES = {"n_classes": st.integers(2, 8), "d": st.integers(1, 6), "seed": st.integers(0, 2**31)}


def gaussian(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# Attribute normalization


@given(**SHAPES)
def test_unit_plain_descriptors_have_norm_1_and_the_same_direction(n_classes, d, seed):
    descriptors = gaussian(n_classes, d, seed)
    unit = AttributeNormalization(d, "unit-plain")(descriptors)
    expected = [[x / math.hypot(*row) for x in row] for row in descriptors.tolist()]
    torch.testing.assert_close(unit, torch.tensor(expected, dtype=torch.float64))


@given(**SHAPES)
def test_unit_is_unit_plain_times_the_root_of_the_dimension(n_classes, d, seed):
    descriptors = gaussian(n_classes, d, seed)
    plain = AttributeNormalization(d, "unit-plain")(descriptors)
    torch.testing.assert_close(AttributeNormalization(d, "unit")(descriptors), d**0.5 * plain)


@pytest.mark.parametrize("kind", ["unit", "unit-plain"])
def test_an_all_zero_descriptor_stays_zero(kind):
    assert AttributeNormalization(3, kind)(torch.zeros(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


def test_none_leaves_descriptors_unchanged():
    descriptors = gaussian(4, 3)
    assert AttributeNormalization(3, "none")(descriptors).equal(descriptors)


def test_standardized_training_descriptors_have_mean_0_and_variance_1():
    train = 7.0 + 3.0 * gaussian(50, 4)
    normalize = AttributeNormalization(4, "standardize").double()
    normalize.fit(train)
    result = normalize(train).numpy()
    np.testing.assert_allclose(result.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(result.var(axis=0), 1.0, rtol=1e-9)


def test_standardize_takes_its_statistics_from_the_training_descriptors():
    train, unseen = 7.0 + 3.0 * gaussian(50, 4), gaussian(5, 4, seed=1)
    normalize = AttributeNormalization(4, "standardize").double()
    normalize.fit(train)
    expected = (unseen.numpy() - train.numpy().mean(axis=0)) / train.numpy().std(axis=0)
    np.testing.assert_allclose(normalize(unseen).numpy(), expected)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3.0, 1000.1])
def test_standardize_makes_a_constant_column_zero_for_unseen_classes_too(constant):
    train = gaussian(37, 2, dtype=torch.float32)
    train[:, 1] = constant
    normalize = AttributeNormalization(2, "standardize")
    normalize.fit(train)
    assert normalize(torch.tensor([[1.0, constant], [1.0, constant + 4.0]]))[:, 1].tolist() == [0.0, 0.0]


def test_the_statistics_of_standardize_are_part_of_the_state():
    fitted, fresh = AttributeNormalization(3, "standardize"), AttributeNormalization(3, "standardize")
    fitted.fit(gaussian(10, 3, dtype=torch.float32))
    fresh.load_state_dict(fitted.state_dict())
    unseen = gaussian(2, 3, seed=1, dtype=torch.float32)
    assert fresh(unseen).equal(fitted(unseen))


# Class standardization


@given(**SHAPES)
def test_equation_9_training_divides_the_centred_columns_by_their_standard_deviation(n_classes, d, seed):
    hidden = 2.0 + 3.0 * gaussian(n_classes, d, seed)
    x = hidden.numpy()
    expected = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
    np.testing.assert_allclose(ClassStandardization(d).double()(hidden).numpy(), expected, rtol=1e-6, atol=1e-9)


@given(**SHAPES)
def test_the_variance_option_divides_the_centred_columns_by_their_sample_variance(n_classes, d, seed):
    hidden = 2.0 + 3.0 * gaussian(n_classes, d, seed)
    x = hidden.numpy()
    expected = (x - x.mean(axis=0)) / (x.var(axis=0, ddof=1) + 1e-5)
    standardize = ClassStandardization(d, divide_by="variance").double()
    np.testing.assert_allclose(standardize(hidden).numpy(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_running_statistics_move_a_tenth_of_the_way_each_step(divide_by):
    standardize = ClassStandardization(3, divide_by=divide_by).double()
    mean, variance = np.zeros(3), np.ones(3)
    for step in range(4):
        hidden = 2.0 + 3.0 * gaussian(6, 3, seed=step)
        standardize(hidden)
        mean = 0.9 * mean + 0.1 * hidden.numpy().mean(axis=0)
        variance = 0.9 * variance + 0.1 * hidden.numpy().var(axis=0, ddof=1)
    np.testing.assert_allclose(standardize.running_mean.numpy(), mean)
    np.testing.assert_allclose(standardize.running_var.numpy(), variance)


@pytest.mark.parametrize(("divide_by", "power"), [("std", 0.5), ("variance", 1.0)])
def test_evaluation_uses_the_running_statistics(divide_by, power):
    standardize = ClassStandardization(3, divide_by=divide_by).double()
    for step in range(5):
        standardize(2.0 + 3.0 * gaussian(6, 3, seed=step))
    mean, variance = standardize.running_mean.numpy().copy(), standardize.running_var.numpy().copy()
    unseen = gaussian(4, 3, seed=9)
    expected = (unseen.numpy() - mean) / (variance + 1e-5) ** power
    np.testing.assert_allclose(standardize.eval()(unseen).numpy(), expected)


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_evaluation_leaves_the_running_statistics_alone(divide_by):
    standardize = ClassStandardization(3, divide_by=divide_by).eval()
    standardize(gaussian(6, 3, dtype=torch.float32))
    assert standardize.running_mean.tolist() == [0.0] * 3 and standardize.running_var.tolist() == [1.0] * 3


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_evaluation_embeds_a_class_the_same_whatever_the_other_classes(divide_by):
    standardize = ClassStandardization(3, divide_by=divide_by)
    standardize(gaussian(6, 3, dtype=torch.float32))
    standardize.eval()
    classes = gaussian(5, 3, seed=1, dtype=torch.float32)
    alone = torch.cat([standardize(one) for one in classes.split(1)])
    assert alone.equal(standardize(classes))


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_training_on_a_single_class_is_an_error(divide_by):
    with pytest.raises(ConfigError, match="at least 2 training classes"):
        ClassStandardization(3, divide_by=divide_by)(torch.ones(1, 3))


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_evaluation_of_a_single_class_is_fine(divide_by):
    assert ClassStandardization(3, divide_by=divide_by).eval()(torch.ones(1, 3)).isfinite().all()


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_a_constant_column_is_zero_in_training(divide_by):
    hidden = gaussian(6, 2, dtype=torch.float32)
    hidden[:, 1] = 3.0
    column = ClassStandardization(2, divide_by=divide_by)(hidden)[:, 1]
    # The mean of six 3s may be off by one rounding, which ε = 1e-5 magnifies to 4e-7/√1e-5 or 4e-7/1e-5.
    assert column.abs().max() < 0.05


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_a_constant_column_has_finite_gradients(divide_by):
    hidden = gaussian(6, 2, dtype=torch.float32)
    hidden[:, 1] = 3.0
    hidden.requires_grad_()
    ClassStandardization(2, divide_by=divide_by)(hidden).square().sum().backward()
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize("constant", [0.0, 0.1, 3.0, 100.1, -1000.1])
@pytest.mark.parametrize("divide_by", DIVISORS)
def test_a_column_constant_in_training_is_zero_for_an_unseen_class_that_differs(divide_by, constant):
    standardize = ClassStandardization(1, divide_by=divide_by)
    for _ in range(300):
        standardize(torch.full((37, 1), constant))
    standardize.eval()
    assert standardize(torch.tensor([[constant + 4.0]])).item() == 0.0


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_gradients_of_training_agree_with_finite_differences(divide_by):
    standardize = ClassStandardization(3, divide_by=divide_by).double()
    assert torch.autograd.gradcheck(standardize, gaussian(5, 3).requires_grad_())


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_gradients_of_evaluation_agree_with_finite_differences(divide_by):
    standardize = ClassStandardization(3, divide_by=divide_by).double()
    standardize(gaussian(6, 3, seed=1))
    assert torch.autograd.gradcheck(standardize.eval(), gaussian(5, 3).requires_grad_())


@pytest.mark.parametrize("divide_by", DIVISORS)
def test_reset_forgets_the_running_statistics(divide_by):
    standardize = ClassStandardization(2, divide_by=divide_by)
    standardize(gaussian(6, 2, dtype=torch.float32))
    standardize.reset_running_statistics()
    assert standardize.running_mean.tolist() == [0.0, 0.0] and standardize.running_var.tolist() == [1.0, 1.0]


# Dynamic normalization


def mean_square_norm(hidden: torch.Tensor) -> float:
    return sum(sum(x * x for x in row) for row in hidden.tolist()) / len(hidden)


@given(**SHAPES)
def test_dynamic_normalization_divides_by_the_mean_squared_norm_of_the_classes(n_classes, d, seed):
    hidden = gaussian(n_classes, d, seed)
    expected = hidden / (mean_square_norm(hidden) + 1e-5)
    torch.testing.assert_close(DynamicNormalization().double()(hidden), expected)


@given(**SHAPES)
def test_only_the_root_of_the_mean_squared_norm_gives_a_mean_squared_norm_of_one(n_classes, d, seed):
    hidden = 3 * gaussian(n_classes, d, seed)
    norm = mean_square_norm(hidden)
    tolerance = 1e-4 / norm + 1e-5
    root, printed = (mean_square_norm(DynamicNormalization(root=root).double()(hidden)) for root in (True, False))
    assert root == pytest.approx(1.0, rel=tolerance)
    assert printed == pytest.approx(1 / norm, rel=tolerance)


def test_dynamic_normalization_by_the_root_evaluates_with_its_running_mean():
    dynamic = DynamicNormalization(root=True).double()
    hidden = gaussian(5, 3, 0)
    trained = dynamic(hidden)
    torch.testing.assert_close(dynamic.eval()(hidden), trained)


def test_dynamic_normalization_starts_its_running_mean_from_the_first_batch_and_then_moves_by_a_tenth():
    dynamic = DynamicNormalization().double()
    first, second = gaussian(4, 3, seed=1), 5.0 * gaussian(4, 3, seed=2)
    dynamic(first)
    dynamic(second)
    expected = 0.9 * mean_square_norm(first) + 0.1 * mean_square_norm(second)
    assert dynamic.running_norm.item() == pytest.approx(expected)


def test_dynamic_normalization_evaluates_a_class_the_same_whatever_the_other_classes():
    dynamic = DynamicNormalization()
    dynamic(gaussian(4, 3, dtype=torch.float32))
    dynamic.eval()
    classes = gaussian(5, 3, seed=1, dtype=torch.float32)
    assert torch.cat([dynamic(one) for one in classes.split(1)]).equal(dynamic(classes))


def test_dynamic_normalization_of_zeros_is_finite_with_finite_gradients():
    hidden = torch.zeros(4, 3, requires_grad=True)
    DynamicNormalization()(hidden).sum().backward()
    assert hidden.grad.isfinite().all()


def test_gradients_of_dynamic_normalization_agree_with_finite_differences():
    assert torch.autograd.gradcheck(DynamicNormalization().double(), gaussian(4, 3).requires_grad_())
