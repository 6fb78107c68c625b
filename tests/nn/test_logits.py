"""Scaled cosine logits, their variance at initialisation (statement 1), the entropy regulariser, and the softmax over a
sample of the classes."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from classnorm.errors import ConfigError
from classnorm.nn import (
    cosine_cross_entropy,
    cosine_logits,
    dot_logits,
    entropy_regularizer,
    gamma_for_variance,
    logit_variance,
    sample_classes,
)

GAMMAS = st.floats(0.1, 30.0)
DIMENSIONS = st.integers(3, 100_000)


def gaussian(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@given(
    n=st.integers(0, 5),
    n_classes=st.integers(1, 5),
    d_z=st.integers(1, 12),
    gamma=GAMMAS,
    seed=st.integers(0, 2**31),
)
def test_cosine_logits_are_the_scaled_cosine_of_each_pair(n, n_classes, d_z, gamma, seed):
    features, prototypes = gaussian(n, d_z, seed=seed), gaussian(n_classes, d_z, seed=seed + 1)
    logits = cosine_logits(features, prototypes, gamma)
    assert logits.shape == (n, n_classes)
    for i, z in enumerate(features.tolist()):
        for c, p in enumerate(prototypes.tolist()):
            product = math.fsum(a * b for a, b in zip(z, p, strict=True))
            cosine = product / (math.hypot(*z) * math.hypot(*p))
            assert logits[i, c].item() == pytest.approx(gamma**2 * cosine, rel=1e-9, abs=1e-9 * gamma**2)


@given(feature_scale=st.floats(1e-3, 1e3), prototype_scale=st.floats(1e-3, 1e3))
def test_cosine_logits_do_not_depend_on_the_lengths_of_the_vectors(feature_scale, prototype_scale):
    features, prototypes = gaussian(4, 6, seed=0), gaussian(3, 6, seed=1)
    rescaled = cosine_logits(feature_scale * features, prototype_scale * prototypes)
    torch.testing.assert_close(rescaled, cosine_logits(features, prototypes))


def test_cosine_logits_of_a_zero_feature_are_zero():
    assert cosine_logits(torch.zeros(1, 4), torch.ones(3, 4)).tolist() == [[0.0, 0.0, 0.0]]


def test_cosine_logits_of_a_zero_prototype_are_zero():
    assert cosine_logits(torch.ones(2, 4), torch.zeros(1, 4)).tolist() == [[0.0], [0.0]]


def test_gradients_at_zero_vectors_are_finite():
    features, prototypes = torch.zeros(1, 4, requires_grad=True), torch.zeros(2, 4, requires_grad=True)
    cosine_logits(features, prototypes).sum().backward()
    assert features.grad.isfinite().all() and prototypes.grad.isfinite().all()


def test_gamma_can_be_learnt():
    gamma = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    features, prototypes = gaussian(2, 5, seed=0), gaussian(3, 5, seed=1)
    cosine_logits(features, prototypes, gamma).sum().backward()
    cosines = torch.cosine_similarity(features[:, None], prototypes[None], dim=-1)
    assert gamma.grad.item() == pytest.approx(2 * 3.0 * cosines.sum().item())


def test_dot_logits_are_the_product_of_each_pair():
    features, prototypes = gaussian(3, 7, seed=0), gaussian(2, 7, seed=1)
    pairs = [
        [math.fsum(a * b for a, b in zip(z, p, strict=True)) for p in prototypes.tolist()] for z in features.tolist()
    ]
    torch.testing.assert_close(dot_logits(features, prototypes), torch.tensor(pairs, dtype=torch.float64))


# Statement 1


@pytest.mark.parametrize("d_z", [2**k for k in range(5, 14)])
def test_simulated_logits_of_gaussian_vectors_have_variance_gamma_4_over_d(d_z):
    """cos² of two Gaussian vectors is Beta(1/2, (d−1)/2), so E cos² = 1/d and E cos⁴ = 3/(d(d+2)).

    Given one vector, the cosine with the other has the same distribution whatever the first is; so pairs that share a
    vector are independent too, and n·m pairs have the standard error of n·m independent draws.
    """
    gamma, n, n_classes = 5.0, 500, 500
    features = gaussian(n, d_z, seed=d_z, dtype=torch.float32)
    prototypes = 3.0 * gaussian(n_classes, d_z, seed=d_z + 1, dtype=torch.float32)
    simulated = cosine_logits(features, prototypes, gamma).double().var().item()
    standard_error = gamma**4 * math.sqrt((3 / (d_z * (d_z + 2)) - 1 / d_z**2) / (n * n_classes))
    assert abs(simulated - gamma**4 / d_z) < 5 * standard_error


@given(gamma=GAMMAS, d_z=DIMENSIONS)
def test_the_papers_variance_exceeds_the_exact_one_by_the_square_of_d_over_d_minus_2(gamma, d_z):
    assert logit_variance(gamma, d_z) / (gamma**4 / d_z) == pytest.approx((d_z / (d_z - 2)) ** 2, rel=1e-12)


def test_unit_variance_in_2048_dimensions_needs_gamma_6_72():
    assert gamma_for_variance(1.0, 2048) == pytest.approx((2046**2 / 2048) ** 0.25, rel=1e-12)
    assert round(gamma_for_variance(1.0, 2048), 2) == 6.72


@given(variance=st.floats(1e-6, 1e6), d_z=DIMENSIONS)
def test_gamma_for_variance_inverts_logit_variance(variance, d_z):
    assert logit_variance(gamma_for_variance(variance, d_z), d_z) == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("d_z", [2, 1, 0])
def test_logit_variance_needs_more_than_2_dimensions(d_z):
    with pytest.raises(ConfigError, match=f"d_z = {d_z}"):
        logit_variance(5.0, d_z)


def test_gamma_for_variance_needs_more_than_2_dimensions():
    with pytest.raises(ConfigError, match="d_z = 2"):
        gamma_for_variance(1.0, 2)


@pytest.mark.parametrize("variance", [0.0, -1.0])
def test_gamma_for_variance_refuses_a_variance_that_is_not_positive(variance):
    with pytest.raises(ConfigError, match="positive"):
        gamma_for_variance(variance, 2048)


# Entropy regulariser

LOGITS = st.lists(st.lists(st.floats(-20, 20), min_size=3, max_size=3), min_size=1, max_size=4)


@given(rows=LOGITS)
def test_the_entropy_regularizer_is_the_mean_negative_entropy(rows):
    def entropy(row: list[float]) -> float:
        exponentials = [math.exp(x) for x in row]
        return -sum(e / sum(exponentials) * math.log(e / sum(exponentials)) for e in exponentials)

    expected = -sum(entropy(row) for row in rows) / len(rows)
    assert entropy_regularizer(torch.tensor(rows, dtype=torch.float64)).item() == pytest.approx(expected, abs=1e-9)


@given(rows=LOGITS)
def test_the_entropy_regularizer_is_least_for_uniform_predictions(rows):
    logits = torch.tensor(rows, dtype=torch.float64)
    assert entropy_regularizer(torch.zeros_like(logits)) <= entropy_regularizer(logits) + 1e-12


def test_the_entropy_regularizer_pushes_towards_uniform_predictions():
    logits = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
    entropy_regularizer(logits).backward()
    assert logits.grad[0, 0] > 0 > logits.grad[0, 2]


@given(n=st.integers(1, 5), n_classes=st.integers(1, 5), gamma=st.floats(0.1, 8.0), seed=st.integers(0, 2**31))
def test_cosine_cross_entropy_has_the_loss_and_the_gradient_of_cosine_logits(n, n_classes, gamma, seed):
    features = F.normalize(gaussian(n, 6, seed=seed), dim=1)
    labels = torch.arange(n) % n_classes
    plain, fused = (gaussian(n_classes, 6, seed=seed + 1).requires_grad_() for _ in range(2))
    expected = F.cross_entropy(cosine_logits(features, plain, gamma), labels)
    loss = cosine_cross_entropy(features, fused, labels, torch.tensor(gamma**2, dtype=torch.float64))
    (3 * expected).backward()
    (3 * loss).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(fused.grad, plain.grad)


def test_cosine_cross_entropy_of_a_zero_prototype_is_finite():
    prototypes = torch.zeros(2, 3).requires_grad_()
    loss = cosine_cross_entropy(torch.eye(3)[:2], prototypes, torch.tensor([0, 1]), torch.tensor(25.0))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert prototypes.grad.isfinite().all()


@pytest.fixture
def logits():
    return torch.randn(5, 40, generator=torch.Generator().manual_seed(0))


LABELS = torch.tensor([3, 39, 3, 0, 11])


def draws(size, n=4000):
    generator = torch.Generator().manual_seed(1)
    return [sample_classes(LABELS, 40, size, generator) for _ in range(n)]


def test_a_sample_has_the_classes_of_the_batch_and_others_once_each():
    for sample in draws(7, 50):
        assert torch.equal(sample.classes[sample.labels], LABELS)
        assert len(sample.classes.unique()) == len(sample.classes) == 4 + 7


def test_the_sum_over_a_sample_estimates_the_sum_over_all_classes_without_bias(logits):
    sums = torch.stack([(logits[:, s.classes] + s.log_weights).exp().sum(dim=1) for s in draws(7)])
    error = sums.std(dim=0) / len(sums) ** 0.5
    assert ((sums.mean(dim=0) - logits.exp().sum(dim=1)).abs() < 4 * error).all()
    assert (error < 0.02 * sums.mean(dim=0)).all()


def test_a_sample_of_all_other_classes_is_exact(logits):
    [sample] = draws(36, 1)
    assert torch.equal(sample.classes.sort().values, torch.arange(40))
    assert not sample.log_weights.any()
    [again] = draws(1000, 1)
    assert torch.equal(again.classes, sample.classes)
    found = entropy_regularizer(logits[:, sample.classes], sample.log_weights)
    assert torch.allclose(found, entropy_regularizer(logits))


def test_the_entropy_of_equal_logits_is_that_of_all_classes():
    [sample] = draws(7, 1)
    found = entropy_regularizer(torch.zeros(5, 11), sample.log_weights)
    assert torch.allclose(found, entropy_regularizer(torch.zeros(5, 40)))


def test_a_batch_with_every_class_needs_no_others():
    sample = sample_classes(torch.arange(6), 6, 3, torch.Generator().manual_seed(0))
    assert sample.classes.tolist() == list(range(6))
    assert not sample.log_weights.any()
