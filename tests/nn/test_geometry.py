"""The geometry of features against its direct formula, in one go and over batches."""

import numpy as np
import pytest
import torch

from classnorm.errors import ConfigError
from classnorm.nn import FeatureGeometry, FeatureMoments


def rows(n=300, d=24, seed=0, signed=False):
    generator = torch.Generator().manual_seed(seed)
    made = torch.rand(n, d, generator=generator) * torch.linspace(0.1, 3, d)
    return made - 0.5 if signed else made


def direct(train, features, k, power, shrinkage, whitening):
    """Word by word, in NumPy."""

    def powered(x):
        return np.sign(x) * np.abs(x) ** power

    x = powered(train.double().numpy())
    center = x - x.mean(axis=0)
    covariance = center.T @ center / len(x)
    d = len(covariance)
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    values, vectors = np.linalg.eigh(shrunk)
    order = np.argsort(values)[::-1][:k]
    out = (powered(features.double().numpy()) - x.mean(axis=0)) @ (vectors[:, order] * values[order] ** -whitening)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("power", "shrinkage", "whitening"), [(0.5, 0.3, 0.35), (1.0, 0.0, 0.5), (0.7, 0.9, 0.0)])
def test_it_is_its_formula(signed, power, shrinkage, whitening):
    train, new = rows(signed=signed), rows(40, seed=1, signed=signed)
    geometry = FeatureGeometry(24, 10, power, shrinkage, whitening).fit(train)
    expected = direct(train, new, 10, power, shrinkage, whitening)
    found = geometry(new).numpy()
    # eigenvectors have no sign of their own: products of placed rows do not depend on it
    assert np.allclose(found @ found.T, expected @ expected.T, atol=1e-5)


def test_batches_add_up_to_the_same_geometry():
    train = rows(500)
    moments = FeatureMoments(24)
    for part in train.split(37):
        moments.update(part)
    streamed, whole = FeatureGeometry(24, 12).fit_moments(moments), FeatureGeometry(24, 12).fit(train)
    new = rows(30, seed=2)
    assert torch.allclose(streamed(new) @ streamed(new).T, whole(new) @ whole(new).T, atol=1e-5)


def test_the_mean_of_a_class_can_be_placed_from_sums():
    train = rows()
    geometry = FeatureGeometry(24, 12).fit(train)
    mean = train[:20].sqrt().mean(dim=0)
    expected = torch.nn.functional.normalize((mean - geometry.mean) @ geometry.projection, dim=0)
    assert torch.allclose(geometry.place(mean[None])[0], expected)


def test_its_statistics_are_saved_with_a_model():
    geometry = FeatureGeometry(24, 12).fit(rows())
    other = FeatureGeometry(24, 12)
    other.load_state_dict(geometry.state_dict())
    assert torch.equal(other(rows(5)), geometry(rows(5)))


def test_full_whitening_makes_training_rows_white():
    train = rows(2000, signed=True)
    geometry = FeatureGeometry(24, 24, power=1.0, shrinkage=0.0, whitening=0.5).fit(train)
    placed = (train - geometry.mean) @ geometry.projection
    assert torch.allclose(placed.T @ placed / len(placed), torch.eye(24), atol=1e-3)


def test_fewer_features_than_dimensions_and_fewer_rows_than_features_work():
    assert FeatureGeometry(6, 512).fit(rows(50, 6))(rows(3, 6)).shape == (3, 6)
    assert torch.isfinite(FeatureGeometry(24, 24, shrinkage=0.0).fit(rows(3))(rows(5))).all()


@pytest.mark.parametrize("bad", [{"power": 0.0}, {"shrinkage": 1.5}, {"whitening": -0.1}, {"dimensions": 0}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(ConfigError, match="a geometry cannot have"):
        FeatureGeometry(8, **bad)


def test_moments_of_another_power_are_refused():
    with pytest.raises(ConfigError, match="power"):
        FeatureGeometry(24, power=0.5).fit_moments(FeatureMoments(24, power=1.0))
