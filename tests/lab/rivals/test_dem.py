"""DEM: least squares in the space of the features."""

import numpy as np
import pytest
import torch

from classnorm.data import SyntheticConfig, ZeroShotDataset, synthetic
from classnorm.errors import ConfigError
from classnorm.methods import METHODS, FitContext, resolve
from classnorm.metrics import gzsl_scores
from classnorm.scoring import Scorer, fit

SMALL = {"hidden": 64, "epochs": 20, "lr": 5e-3}


def test_unseen_classes_are_recognised_far_above_chance(small_dataset):
    scorer = fit(small_dataset, method="dem", calibration="none", **SMALL)
    rows = small_dataset.test_rows
    result = gzsl_scores(scorer.scores(small_dataset.features[rows]), small_dataset.labels[rows], small_dataset.seen)
    assert result.zsl > 40  # chance is 10 %
    assert result.seen > 40  # chance is 2.5 %


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


def test_a_saved_model_scores_the_same(small_dataset, tmp_path):
    scorer = fit(small_dataset, method="dem", calibration="none", hidden=16, epochs=1)
    loaded = Scorer.load(scorer.save(tmp_path))
    assert np.array_equal(loaded.scores(small_dataset.features[:50]), scorer.scores(small_dataset.features[:50]))


def test_features_of_either_sign_turn_the_final_relu_off():
    assert not resolve(linear_problem(), "dem")[1].final_relu
    assert not resolve(linear_problem(), "dem", "paper")[1].final_relu


def test_two_seen_classes_are_enough_to_train():
    dataset = synthetic(SyntheticConfig(classes=4, unseen=2, rows=80, features=8, attributes=5))
    scorer = fit(dataset, method="dem", calibration="none", hidden=8, epochs=2)
    assert np.isfinite(scorer.scores(dataset.features)).all()


def test_the_paper_recipe_takes_a_million_steps(small_dataset):
    config = resolve(small_dataset, "dem", "paper")[1]
    steps = config.epochs * -(-len(small_dataset.split.train) // config.batch_size)
    assert steps == pytest.approx(1_000_000, rel=0.01)


@pytest.mark.parametrize(("change", "message"), [({"hidden": 0}, "hidden is 0"), ({"layers": 0}, "layers is 0")])
def test_invalid_settings_are_refused(small_dataset, change, message):
    with pytest.raises(ConfigError, match=message):
        fit(small_dataset, method="dem", **change)
