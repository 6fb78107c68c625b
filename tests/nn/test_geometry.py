"""The feature geometry against its direct formula, on all rows and over batches."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classnorm.errors import ConfigError
from classnorm.nn import FeatureGeometry, FeatureMoments
from classnorm.nn.geometry import signed_power, with_hubness


def rows(n=300, d=24, seed=0, signed=False):
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(n, d, generator=generator) * torch.linspace(0.1, 3, d)
    return features - 0.5 if signed else features


def direct(train, features, k, power, shrinkage, whitening, labels=None, within=0.0):
    """The formula, in NumPy."""

    def powered(x):
        return np.sign(x) * np.abs(x) ** power

    x = powered(train.double().numpy())
    center = x - x.mean(axis=0)
    covariance = center.T @ center / len(x)
    if within:
        own = x - np.stack([x[labels == label].mean(axis=0) for label in labels])  # what varies inside classes
        covariance = (1 - within) * covariance + within * own.T @ own / len(x)
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
    transformed = geometry(new).numpy()
    # eigenvectors have no sign of their own: products of transformed rows do not depend on it
    assert np.allclose(transformed @ transformed.T, expected @ expected.T, atol=1e-5)


@pytest.mark.parametrize("within", [0.3, 1.0])
def test_the_variance_between_classes_can_be_left_out(within):
    train, new = rows(), rows(40, seed=1)
    labels = torch.arange(len(train)) % 7
    train += labels[:, None] * torch.rand(24, generator=torch.Generator().manual_seed(3))
    geometry = FeatureGeometry(24, 10, within=within).fit(train, labels)
    expected = direct(train, new, 10, 0.5, 0.3, 0.35, labels.numpy(), within)
    transformed = geometry(new).numpy()
    assert np.allclose(transformed @ transformed.T, expected @ expected.T, atol=1e-5)
    with pytest.raises(ConfigError, match="labels"):
        geometry.fit(train)


def test_batches_add_up_to_the_same_geometry():
    train = rows(500)
    labels = torch.randint(5, (500,), generator=torch.Generator().manual_seed(0))
    moments = FeatureMoments(24, n_classes=5)
    for part, own in zip(train.split(37), labels.split(37), strict=True):
        moments.update(part, own)
    streamed = FeatureGeometry(24, 12, within=0.5).fit_moments(moments)
    whole = FeatureGeometry(24, 12, within=0.5).fit(train, labels)
    new = rows(30, seed=2)
    assert torch.allclose(streamed(new) @ streamed(new).T, whole(new) @ whole(new).T, atol=1e-5)


def test_many_dimensions_take_another_path_to_the_same_geometry():
    """Where eigenvectors come from the inverse: one direction dwarfs the others, and some features are far from 0."""
    generator = torch.Generator().manual_seed(0)
    train, new = (
        torch.rand(n, 300, generator=generator) + 40 * torch.rand(n, 1, generator=generator) for n in (900, 30)
    )
    train[:, :20], new[:, :20] = train[:, :20] + 100, new[:, :20] + 100
    labels = torch.arange(900) % 9
    # With all directions kept, no choice between nearly equal ones is left to rounding.
    geometry = FeatureGeometry(300, 300, within=0.5).fit(train, labels)
    expected = direct(train, new, 300, 0.5, 0.3, 0.35, labels.numpy(), 0.5)
    transformed = geometry(new).numpy()
    assert np.allclose(transformed @ transformed.T, expected @ expected.T, atol=1e-4)


@pytest.mark.parametrize("d", [12, 300])
def test_only_the_leading_directions_are_kept(d):
    scale = torch.cat([torch.linspace(3, 2, 6), torch.full((d - 6,), 0.5)])  # a clear gap
    train = torch.randn(2000, d, generator=torch.Generator().manual_seed(0)) * scale
    projection = FeatureGeometry(d, 6, power=1.0).fit(train).projection
    basis, _ = torch.linalg.qr(projection)
    assert torch.allclose(basis @ basis.T, torch.diag((scale > 1).float()), atol=0.1)


def test_features_that_do_not_vary_are_placed_at_0():
    assert not FeatureGeometry(300, 4).fit(torch.ones(5, 300))(torch.ones(2, 300)).any()


def test_moments_are_sums_of_powered_features_and_leave_them_alone():
    train, labels = rows(10_000, 5, signed=True) + 7, torch.arange(10_000) % 3
    before = train.clone()
    moments = FeatureMoments(5, power=1.0, n_classes=4).update(train, labels).update(train[:0], labels[:0])
    assert torch.equal(train, before)
    exact = train.double()
    assert torch.allclose(moments.products, exact.T @ exact, rtol=1e-6)
    sums = torch.stack([exact[labels == c].sum(dim=0) for c in range(4)])
    assert torch.allclose(moments.sums, sums, rtol=1e-6) and moments.counts.tolist() == [3334, 3333, 3333, 0]
    centred = exact - exact.mean(dim=0)
    assert torch.allclose(moments.covariance(), centred.T @ centred / 10_000, atol=1e-5)


def test_square_roots_keep_the_sign_and_zero():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, generator=generator) * 10 ** torch.empty(1000).uniform_(-12, 12, generator=generator)
    x[:3] = torch.tensor([0.0, -0.0, 1e-30])
    assert torch.allclose(signed_power(x, 0.5).double(), x.double().sign() * x.double().abs().sqrt(), rtol=1e-6, atol=0)


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
    transformed = (train - geometry.mean) @ geometry.projection
    assert torch.allclose(transformed.T @ transformed / len(transformed), torch.eye(24), atol=1e-3)


def test_fewer_features_than_dimensions_and_fewer_rows_than_features_work():
    assert FeatureGeometry(6, 512).fit(rows(50, 6))(rows(3, 6)).shape == (3, 6)
    assert torch.isfinite(FeatureGeometry(24, 24, shrinkage=0.0).fit(rows(3))(rows(5))).all()


@pytest.mark.parametrize(
    "bad", [{"power": 0.0}, {"shrinkage": 1.5}, {"whitening": -0.1}, {"dimensions": 0}, {"within": 2.0}]
)
def test_invalid_settings_are_refused(bad):
    with pytest.raises(ConfigError, match=f"{next(iter(bad))} is"):
        FeatureGeometry(8, **bad)


def test_moments_of_another_power_are_refused():
    with pytest.raises(ConfigError, match="power"):
        FeatureGeometry(24, power=0.5).fit_moments(FeatureMoments(24, power=1.0))


@pytest.mark.parametrize(("weights", "shares"), [(None, (0.5, 0.5)), ((0.8, 0.2), (0.8, 0.2))])
def test_blocks_are_mapped_each_for_itself_and_their_cosines_are_averaged(weights, shares):
    rows = torch.rand(80, 14, generator=torch.Generator().manual_seed(3)) * torch.arange(1, 15)
    labels = torch.arange(80) % 5
    both = FeatureGeometry(14, 4, within=0.5, blocks=(9, 5), weights=weights).fit(rows, labels)
    alone = [FeatureGeometry(part.shape[1], 4, within=0.5).fit(part, labels) for part in (rows[:, :9], rows[:, 9:])]
    transformed = [part(rows[:, columns]) for part, columns in zip(alone, (slice(9), slice(9, 14)), strict=True)]
    expected = sum(share * part @ part.T for share, part in zip(shares, transformed, strict=True))
    torch.testing.assert_close(both(rows) @ both(rows).T, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("power", [0.4, 0.5, 0.75, 1.0])
def test_the_signed_power_has_a_finite_gradient_at_zero(power):
    x = torch.tensor([0.0, 2.0, -3.0], requires_grad=True)
    signed_power(x, power).sum().backward()
    expected = [power * abs(value) ** (power - 1) for value in (2.0, -3.0)]
    assert torch.isfinite(x.grad[0]) and x.grad[1:].tolist() == pytest.approx(expected)


def test_moments_of_parts_add_up_to_those_of_all_rows():
    """Parts have classes of their own numbering, which `add` is told."""
    features, labels = rows(60, 6), torch.arange(60) % 5
    whole = FeatureMoments(6, n_classes=5).update(features, labels)
    total = FeatureMoments(6, n_classes=5)
    for classes in (torch.tensor([4, 1]), torch.tensor([0, 2, 3])):
        own = torch.isin(labels, classes)
        position = torch.full((5,), -1)
        position[classes] = torch.arange(len(classes))
        part = FeatureMoments(6, n_classes=len(classes)).update(features[own], position[labels[own]])
        total.add(part, classes)
    torch.testing.assert_close(total.counts, whole.counts)
    torch.testing.assert_close(total.sums, whole.sums, rtol=1e-5, atol=1e-6)  # products are computed in float32
    torch.testing.assert_close(total.products, whole.products, rtol=1e-5, atol=1e-5)


def test_a_class_close_to_many_others_is_held_back_by_its_mean_cosine_with_the_nearest():
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.randn(6, 5, generator=generator)
    means = F.normalize(torch.randn(40, 5, generator=generator), dim=1)
    table = with_hubness(prototypes, means, hubness=0.3)
    assert torch.equal(table[:, :-1], prototypes)
    for prototype, penalty in zip(prototypes, table[:, -1], strict=True):
        cosines = sorted((float(prototype @ mean / prototype.norm()) for mean in means), reverse=True)
        assert -float(penalty) == pytest.approx(0.3 * sum(cosines[:3]) / 3, rel=1e-4)


def test_with_fewer_seen_classes_than_neighbours_all_of_them_count():
    means = F.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), dim=1)
    table = with_hubness(torch.tensor([[3.0, 4.0]]), means, hubness=1.0)
    assert table[0].tolist() == pytest.approx([3.0, 4.0, -0.7])
