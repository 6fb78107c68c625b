"""DEM: least squares in the space of the features."""

import numpy as np
import pytest
import torch

from classnorm.data import ZeroShotDataset
from classnorm.methods import METHODS, FitContext, resolve
from classnorm.scoring import fit


def linear_problem():
    """Features that are affine in the descriptors, plus noise: 12 seen classes in 4 dimensions, 2 unseen ones."""
    generator = np.random.default_rng(0)
    descriptors = generator.normal(size=(14, 4))
    labels = np.repeat(np.arange(14), 20)
    features = descriptors[labels] @ generator.normal(size=(4, 6)) + 0.5 + 0.3 * generator.normal(size=(280, 6))
    names = [f"c{i}" for i in range(14)]
    return ZeroShotDataset.from_arrays(
        features, labels, descriptors, names, train=np.arange(240), test_unseen=np.arange(240, 280)
    )


def test_a_linear_embedder_reaches_the_least_squares_solution():
    dataset = linear_problem()
    model = {"layers": 1, "attribute_normalization": "none", "final_relu": False, "weight_decay": 0.0}
    training = {"epochs": 400, "batch_size": 240, "lr": 0.2, "schedule": "cosine"}
    scorer = fit(dataset, method="dem", calibration="none", **model, **training)
    train = dataset.split.train
    design = np.concatenate([dataset.descriptors, np.ones((14, 1))], axis=1)
    weights = np.linalg.lstsq(design[dataset.labels[train]], dataset.features[train], rcond=None)[0]
    np.testing.assert_allclose(scorer.prototypes(), design @ weights, atol=1e-3)


def test_the_loss_is_the_mean_squared_distance_to_the_own_prototype():
    """One step over all rows at a vanishing rate reports the loss of the model it returns."""
    dataset = linear_problem()
    method, config = resolve(dataset, "dem", epochs=1, batch_size=240, lr=1e-12, hidden=8)
    fitted = METHODS["dem"].fit(dataset, config, 0, FitContext(torch.device("cpu")))
    train = dataset.split.train
    with torch.no_grad():
        prototypes = fitted.model.prototypes(torch.from_numpy(dataset.descriptors)).numpy()
    distances = np.square(dataset.features[train] - prototypes[dataset.labels[train]]).sum(axis=1)
    assert fitted.history[0]["loss"] == pytest.approx(distances.mean() / dataset.d_z, rel=1e-5)
    assert method is METHODS["dem"]


def test_logits_are_negative_squared_distances(small_dataset):
    scorer = fit(small_dataset, method="dem", calibration="none", hidden=16, epochs=1)
    features = small_dataset.features[:7]
    expected = -np.square(features[:, None] - scorer.prototypes()[None]).sum(axis=2)
    np.testing.assert_allclose(scorer.logits(features), expected, rtol=1e-4, atol=1e-4)


def test_features_of_either_sign_turn_the_final_relu_off():
    assert not resolve(linear_problem(), "dem")[1].final_relu
    assert not resolve(linear_problem(), "dem", "paper")[1].final_relu


def test_the_paper_recipe_takes_a_million_steps(small_dataset):
    config = resolve(small_dataset, "dem", "paper")[1]
    steps = config.epochs * -(-len(small_dataset.split.train) // config.batch_size)
    assert steps == pytest.approx(1_000_000, rel=0.01)
