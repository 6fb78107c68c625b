"""ESZSL: its closed form against independent solutions of the same equations."""

import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from classnorm.data import load
from classnorm.errors import ConfigError
from classnorm.methods import resolve
from classnorm.methods.closed_form import Moments, compatibility
from classnorm.scoring import fit


def problem(n, d_z, d_a, n_seen, seed):
    """X [d_z, n], Y [n, n_seen] in {−1, 1} and S [d_a, n_seen] as the publication has them, and the labels."""
    generator = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_seen), generator.integers(n_seen, size=n - n_seen)])
    Y = np.where(labels[:, None] == np.arange(n_seen), 1.0, -1.0)
    return generator.standard_normal((d_z, n)), Y, generator.standard_normal((d_a, n_seen)), labels


def solution(X, S, labels, feature_penalty, descriptor_penalty):
    moments = Moments.of(torch.from_numpy(X.T), torch.from_numpy(labels), S.shape[1])
    return compatibility(moments, torch.from_numpy(S.T), feature_penalty, descriptor_penalty).numpy()


@given(
    n=st.integers(5, 40),
    d_z=st.integers(1, 12),
    d_a=st.integers(1, 8),
    n_seen=st.integers(2, 5),
    penalties=st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    seed=st.integers(0, 99),
)
def test_the_matrix_meets_the_optimality_condition(n, d_z, d_a, n_seen, penalties, seed):
    gamma, lam = 10.0 ** penalties[0], 10.0 ** penalties[1]
    X, Y, S, labels = problem(n, d_z, d_a, n_seen, seed)
    V = solution(X, S, labels, gamma, lam)
    right = X @ Y @ S.T
    left = (X @ X.T + gamma * np.eye(d_z)) @ V @ (S @ S.T + lam * np.eye(d_a))
    assert np.linalg.norm(left - right) <= 1e-6 * np.linalg.norm(right)


@given(seed=st.integers(0, 99), gamma=st.sampled_from([1e-2, 1.0, 1e2]), lam=st.sampled_from([1e-2, 1.0, 1e2]))
def test_the_matrix_solves_the_normal_equations_written_as_one_system(seed, gamma, lam):
    """With the columns of V below each other, A V B = C is (Bᵀ ⊗ A) vec V = vec C."""
    X, Y, S, labels = problem(30, 6, 4, 5, seed)
    system = np.kron(S @ S.T + lam * np.eye(4), X @ X.T + gamma * np.eye(6))
    expected = np.linalg.solve(system, (X @ Y @ S.T).ravel(order="F")).reshape(6, 4, order="F")
    V = solution(X, S, labels, gamma, lam)
    assert np.linalg.norm(V - expected) <= 1e-6 * np.linalg.norm(expected)


def test_the_matrix_minimises_the_publications_loss():
    """‖Xᵀ V S − Y‖² + γ ‖V S‖² + λ ‖Xᵀ V‖² + γ λ ‖V‖² has its gradient zero there."""
    X, Y, S, labels = problem(50, 7, 5, 6, 1)
    V = torch.from_numpy(solution(X, S, labels, 0.3, 2.0).copy()).requires_grad_()
    X, Y, S = (torch.from_numpy(matrix) for matrix in (X, Y, S))
    loss = (X.T @ V @ S - Y).square().sum() + 0.3 * (V @ S).square().sum()
    loss = loss + 2.0 * (X.T @ V).square().sum() + 0.3 * 2.0 * V.square().sum()
    loss.backward()
    assert V.grad.abs().max() < 1e-9


def test_the_model_keeps_the_solution_of_the_normalised_training_rows(small_dataset):
    scorer = fit(small_dataset, method="eszsl", feature_penalty=30.0, descriptor_penalty=2.0, calibration="none")
    seen, rows = np.flatnonzero(small_dataset.seen), small_dataset.split.train
    X = small_dataset.features[rows].astype(np.float64).T
    X = (X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True)
    S = small_dataset.descriptors[seen].astype(np.float64).T
    S *= np.sqrt(30) / np.linalg.norm(S, axis=0)
    Y = np.where(small_dataset.labels[rows][:, None] == seen, 1.0, -1.0)
    V = np.linalg.solve(X @ X.T + 30.0 * np.eye(64), X @ Y @ S.T) @ np.linalg.inv(S @ S.T + 2.0 * np.eye(30))
    np.testing.assert_allclose(scorer.model.matrix.numpy(), V, rtol=1e-4, atol=1e-5 * np.abs(V).max())
    np.testing.assert_allclose(scorer.logits(small_dataset.features[rows])[:, seen], X.T @ V @ S, rtol=1e-3, atol=1e-3)


def test_a_penalty_too_small_for_the_data_is_named(small_dataset):
    with pytest.raises(ConfigError, match=r"descriptor_penalty is 1e-30, too small for .* raise it"):
        fit(small_dataset, method="eszsl", descriptor_penalty=1e-30, feature_normalization="none")


@pytest.mark.slow
def test_the_real_cub_solution_agrees_with_conjugate_gradients(real_data):
    """S side first and by eigenvectors, X side by iterations that never form X Xᵀ: the other way round."""
    dataset = load(real_data / "xlsa17" / "data" / "CUB", features="efficientnet_lite0")
    gamma, lam = 1e4, 100.0
    seen, rows = np.flatnonzero(dataset.seen), dataset.split.train
    X = np.asarray(dataset.features[rows], dtype=np.float64).T
    X = (X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True)
    S = dataset.descriptors[seen].astype(np.float64).T
    S *= np.sqrt(len(S)) / np.linalg.norm(S, axis=0)
    labels = np.searchsorted(seen, dataset.labels[rows])
    V = solution(X, S, labels, gamma, lam)

    U, sizes, Wt = np.linalg.svd(S, full_matrices=False)
    Y = np.where(labels[:, None] == np.arange(len(seen)), 1.0, -1.0)
    right = X @ (Y @ (Wt.T * (sizes / (sizes**2 + lam))) @ U.T)
    operator = scipy.sparse.linalg.LinearOperator(
        (len(X), len(X)), matvec=lambda v: X @ (X.T @ v) + gamma * v, dtype=np.float64
    )
    expected, failed = scipy.sparse.linalg.cg(operator, right[:, 100], rtol=1e-8, maxiter=2000)
    assert failed == 0
    assert np.linalg.norm(V[:, 100] - expected) <= 1e-6 * np.linalg.norm(expected)
    residual = X @ (X.T @ V) + gamma * V - right
    assert np.linalg.norm(residual) <= 1e-6 * np.linalg.norm(right)


def test_reference_penalties_grow_with_the_data(small_dataset):
    config = resolve(small_dataset, "eszsl")[1]
    assert config.feature_penalty / len(small_dataset.split.train) == pytest.approx(1.0)
    assert config.descriptor_penalty / small_dataset.seen.sum() == pytest.approx(0.5)
