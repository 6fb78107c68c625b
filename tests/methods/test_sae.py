"""SAE: the Sylvester equation, and scores on either side of the autoencoder."""

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from classnorm.methods.closed_form import Moments, encoder
from classnorm.scoring import fit


def problem(n, d_z, d_a, n_seen, seed):
    """X [d_z, n] and S [d_a, n], a descriptor per row, as the publication has them; labels, descriptors."""
    generator = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_seen), generator.integers(n_seen, size=n - n_seen)])
    descriptors = generator.standard_normal((n_seen, d_a))
    return generator.standard_normal((d_z, n)), descriptors[labels].T, labels, descriptors


def solution(X, labels, descriptors, weight):
    moments = Moments.of(torch.from_numpy(X.T), torch.from_numpy(labels), len(descriptors))
    return encoder(moments, torch.from_numpy(descriptors), weight).numpy()


@given(
    n=st.integers(5, 40),
    d_z=st.integers(1, 12),
    d_a=st.integers(1, 8),
    n_seen=st.integers(2, 5),
    exponent=st.floats(-3, 3),
    seed=st.integers(0, 99),
)
def test_the_encoder_solves_the_sylvester_equation(n, d_z, d_a, n_seen, exponent, seed):
    """Also where rows or classes are fewer than dimensions, so that W is not unique."""
    X, S, labels, descriptors = problem(n, d_z, d_a, n_seen, seed)
    weight = 10.0**exponent
    W = solution(X, labels, descriptors, weight)
    right = (1.0 + weight) * S @ X.T
    left = S @ S.T @ W + weight * W @ X @ X.T
    assert np.linalg.norm(left - right) <= 1e-6 * np.linalg.norm(right)


@pytest.mark.parametrize("weight", [1e-2, 1.0, 1e2])
def test_the_encoder_agrees_with_the_bartels_stewart_solver(weight):
    X, S, labels, descriptors = problem(60, 9, 5, 8, seed=3)
    expected = scipy.linalg.solve_sylvester(S @ S.T, weight * X @ X.T, (1.0 + weight) * S @ X.T)
    np.testing.assert_allclose(solution(X, labels, descriptors, weight), expected, rtol=1e-8, atol=1e-10)


def test_the_encoder_minimises_the_two_errors():
    X, S, labels, descriptors = problem(50, 7, 4, 6, seed=2)
    W = torch.from_numpy(solution(X, labels, descriptors, 0.7).copy()).requires_grad_()
    X, S = torch.from_numpy(X), torch.from_numpy(S)
    ((X - W.T @ S).square().sum() + 0.7 * (W @ X - S).square().sum()).backward()
    assert W.grad.abs().max() < 1e-9


@pytest.mark.parametrize("space", ["feature", "descriptor"])
def test_logits_are_cosines_in_the_chosen_space(small_dataset, space):
    scorer = fit(small_dataset, method="sae", score_in=space, calibration="none")
    W = scorer.model.encoder.double()
    x = scorer.model.feature_normalization(torch.from_numpy(small_dataset.features[:20])).double()
    a = scorer.model.attribute_normalization(torch.from_numpy(small_dataset.descriptors)).double()
    ours, theirs = (x, a @ W) if space == "feature" else (x @ W.T, a)
    cosine = torch.cosine_similarity(ours[:, None], theirs[None], dim=2)
    np.testing.assert_allclose(scorer.logits(small_dataset.features[:20]), cosine, atol=1e-5)
