"""Weights of kernels by the errors of classes left out."""

import pytest
import torch

from classnorm.methods.descriptor_kernel import choose_weights, left_out_error


def gram(table):
    return torch.exp(-torch.cdist(table, table).square())


@pytest.fixture
def world():
    """A table of descriptors, targets that depend on it, and a table that says nothing."""
    generator = torch.Generator().manual_seed(0)
    table, noise = (torch.randn(40, 3, generator=generator, dtype=torch.float64) / 2 for _ in range(2))
    targets = torch.cat([table.sin(), table.prod(dim=1, keepdim=True)], dim=1)
    return gram(table), gram(noise), targets


def test_the_error_is_that_of_a_regression_without_each_row(world):
    kernel, _, targets = world
    errors = []
    for row in range(len(kernel)):
        others = [i for i in range(len(kernel)) if i != row]
        own = kernel[others][:, others] + 0.1 * torch.eye(len(others), dtype=kernel.dtype)
        predicted = kernel[row, others] @ torch.linalg.solve(own, targets[others])
        errors.append(float((targets[row] - predicted).square().sum()))
    assert left_out_error(kernel, targets, 0.1) == pytest.approx(sum(errors) / len(errors))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_kernels_that_say_nothing_get_no_weight(world, place):
    kernel, noise, targets = world
    grams = [noise, noise.flip(0).flip(1)]
    grams.insert(place, kernel)
    weights = choose_weights(grams, targets, 0.1)
    assert sum(weights) == pytest.approx(1.0)
    assert weights[place] >= 0.9 and min(weights) >= 0.0


def test_the_weights_have_no_larger_error_than_equal_ones_or_any_kernel_alone(world):
    kernel, noise, targets = world
    shifted = torch.cat([targets, noise[:, :2]], dim=1)  # both kernels help
    weights = choose_weights([kernel, noise], shifted, 0.1)
    chosen = left_out_error(weights[0] * kernel + weights[1] * noise, shifted, 0.1)
    others = (kernel, noise, (kernel + noise) / 2)
    assert chosen <= min(left_out_error(other, shifted, 0.1) for other in others)
    assert 0.0 < weights[0] < 1.0
