"""Kernel prototypes: the closed form, the kernel, the refinement."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classnorm.data import SyntheticConfig, synthetic
from classnorm.data.provenance import Provenance
from classnorm.errors import ConfigError
from classnorm.methods import METHODS, TrainingRows
from classnorm.methods.descriptor_kernel import DescriptorKernel, ridge
from classnorm.methods.kernel import KernelConfig, KernelModel, refinement_loss
from classnorm.scoring import Scorer, fit
from classnorm.training import learning_rate, seeded


def gaussian_gram(a, b, bandwidth):
    return np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / bandwidth)


def prepared(dataset):
    """Descriptors as the method places them, and the bandwidth."""
    powered = np.sign(dataset.descriptors) * np.abs(dataset.descriptors.astype(np.float64)) ** 0.75
    seen = powered[dataset.seen]
    transformed = (powered - seen.mean(0)) / seen.std(0, ddof=1) ** 0.25
    transformed /= np.linalg.norm(transformed, axis=1, keepdims=True)
    own = transformed[dataset.seen]
    pairs = ((own[:, None] - own[None]) ** 2).sum(-1)[np.triu_indices(len(own), 1)]
    return transformed, own, 2 * np.sort(pairs)[(len(pairs) - 1) // 2]


def test_the_closed_form_is_kernel_ridge_regression(small_dataset):
    scorer = fit(small_dataset, method="kernel", recipe="closed-form", calibration="none")
    transformed, own, bandwidth = prepared(small_dataset)
    rows = TrainingRows.of(small_dataset, torch.device("cpu"))
    powered = rows.features.sign() * rows.features.abs().sqrt()
    means = torch.stack([powered[rows.labels == c].mean(dim=0) for c in range(len(own))])
    means = scorer.model.geometry.place(means).double().numpy()
    alpha = np.linalg.solve(gaussian_gram(own, own, bandwidth) + 0.1 * np.eye(len(own)), means)
    expected = gaussian_gram(transformed, own, bandwidth) @ alpha
    length = np.linalg.norm(expected, axis=1, keepdims=True)
    near = np.sort(expected / length @ means.T, axis=1)[:, -3:].mean(axis=1)  # of hubs
    assert np.allclose(scorer.prototypes()[:, :-1], expected / length**1.3, atol=1e-3)
    assert np.allclose(scorer.prototypes()[:, -1], -0.05 * near, atol=1e-3)


def test_the_features_of_the_kernel_have_its_inner_products(small_dataset):
    transformed, own, bandwidth = prepared(small_dataset)
    seen = torch.from_numpy(small_dataset.descriptors[small_dataset.seen])
    kernel = DescriptorKernel.fit(seen, KernelConfig(descriptor_power=0.75), 0)
    features = kernel(torch.from_numpy(small_dataset.descriptors)).double().numpy()
    own_features = features[small_dataset.seen]
    assert np.allclose(features @ own_features.T, gaussian_gram(transformed, own, bandwidth), atol=2e-3)


def test_refinement_improves_the_fit_to_the_seen_classes_and_keeps_the_unseen(small_dataset, accuracies):
    closed = accuracies(fit(small_dataset, method="kernel", recipe="closed-form"), small_dataset)
    refined = accuracies(fit(small_dataset, method="kernel"), small_dataset)
    assert closed.zsl > 40 and refined.zsl > 40  # chance is 10 %
    assert refined.seen > closed.seen - 3


def textbook_loss(model, features, batch, labels):
    mapped = F.normalize(batch + model.map_rate * batch @ model.map, dim=1)
    prototypes = F.normalize(features @ model.coefficients, dim=1)
    return F.cross_entropy(model.scale * mapped @ prototypes.T, labels)


def errors_of_classes_left_out(features, means, penalty):
    """A regression on all other classes for each class."""
    phi, errors = features.double(), []
    for c in range(len(phi)):
        others = torch.arange(len(phi)) != c
        gram = phi[others] @ phi[others].T + penalty * torch.eye(len(phi) - 1, dtype=phi.dtype)
        errors.append(means[c] - phi[c] @ phi[others].T @ torch.linalg.solve(gram, means[others].double()))
    return torch.stack(errors)


def textbook_fit(dataset, config):
    """The method step by step, with moments in float64 and gradients by autograd."""
    rows = TrainingRows.of(dataset, torch.device("cpu"))
    n = len(rows.descriptors)
    model = KernelModel(config, dataset.d_z, DescriptorKernel.fit(rows.descriptors, config, 0), n)
    powered = rows.features.double().sign() * rows.features.double().abs().sqrt()
    means = torch.stack([powered[rows.labels == c].mean(dim=0) for c in range(n)])
    total, own = powered - powered.mean(dim=0), powered - means[rows.labels]
    covariance = ((1 - config.within) * total.T @ total + config.within * own.T @ own) / len(powered)
    errors = errors_of_classes_left_out(model.kernel(rows.descriptors), means - powered.mean(dim=0), config.ridge)
    covariance += config.error_share * errors.T @ errors / n
    values, vectors = torch.linalg.eigh(covariance)
    shrunk = (1 - config.shrinkage) * values + config.shrinkage * values.mean()
    model.geometry.mean.copy_(powered.mean(dim=0))
    model.geometry.projection.copy_((vectors * shrunk**-config.whitening).flip(1)[:, : config.dimensions])
    features = model.kernel(rows.descriptors)
    transformed = model.geometry(rows.features)
    model.means.copy_(model.geometry.place(means.float()))
    model.coefficients.data.copy_(ridge(features, model.means, config.ridge))
    closed = model.coefficients.detach().clone()
    steps = -(-len(transformed) // config.batch_size)
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(config.epochs):
        order = torch.randperm(len(transformed), generator=seeded(0, epoch))
        for step, batch in enumerate(order.split(config.batch_size)):
            optimizer.param_groups[0]["lr"] = learning_rate(config, epoch * steps + step, config.epochs * steps)
            optimizer.zero_grad()
            textbook_loss(model, features, transformed[batch], rows.labels[batch]).backward()
            optimizer.step()
    model.coefficients.data = 0.75 * model.coefficients.data + 0.25 * closed
    return model


def test_a_fit_equals_the_textbook_one(small_dataset):
    recipe = METHODS["kernel"].recipes["reference"](small_dataset)
    config = recipe.replace(calibration="none", batch_size=100, dimensions=small_dataset.d_z)
    expected = textbook_fit(small_dataset, config)
    scorer = fit(small_dataset, method="kernel", calibration="none", batch_size=100)
    with torch.no_grad():
        prototypes = expected.prototypes(torch.from_numpy(small_dataset.descriptors))
        logits = expected.logits(torch.from_numpy(small_dataset.features), prototypes).numpy()
    # Of scores up to 20; Adam amplifies rounding where a gradient is close to 0.
    np.testing.assert_allclose(scorer.logits(small_dataset.features), logits, atol=2e-2)
    assert abs(scorer.logits(small_dataset.features) - logits).mean() < 1e-3


@pytest.mark.parametrize(("b", "rate"), [(40, 0.1), (1, 1.0)])
def test_the_gradient_of_the_refinement_is_that_of_autograd(b, rate):
    generator = torch.Generator().manual_seed(0)
    kernel = DescriptorKernel(KernelConfig(), 30, 7, 9)
    model = KernelModel(KernelConfig(dimensions=16, map_rate=rate), 24, kernel, 12)
    with torch.no_grad():
        for parameter in (model.coefficients, model.map):
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    batch = F.normalize(torch.randn(b, 16, generator=generator), dim=1)
    features, labels = torch.randn(12, 9, generator=generator), torch.randint(12, (b,), generator=generator)
    expected = textbook_loss(model, features, batch, labels)
    loss = refinement_loss(batch, labels, features, model.coefficients, model.map, rate, model.scale)
    assert torch.allclose(loss, expected, atol=1e-5)
    parameters = [model.coefficients, model.map]
    for own, auto in zip(
        torch.autograd.grad(3 * loss, parameters), torch.autograd.grad(3 * expected, parameters), strict=True
    ):
        assert torch.allclose(own, auto, atol=1e-5 * float(auto.abs().max()))


def test_landmarks_approximate_the_kernel(small_dataset, accuracies):
    exact = accuracies(fit(small_dataset, method="kernel", recipe="closed-form", calibration="none"), small_dataset)
    some = fit(small_dataset, method="kernel", recipe="closed-form", calibration="none", landmarks=20)
    assert some.model.kernel.landmarks.shape[0] == 20
    assert accuracies(some, small_dataset).zsl > exact.zsl - 20


@pytest.fixture(scope="module")
def with_noise(small_dataset):
    """Eight more columns of descriptors that say nothing."""
    noise = np.random.default_rng(0).normal(size=(small_dataset.n_classes, 8)).astype(np.float32)
    return replace(small_dataset, descriptors=np.concatenate([small_dataset.descriptors, noise], axis=1))


def test_blocks_get_kernels_of_their_own_and_weights_by_what_they_say(small_dataset, with_noise, accuracies):
    scorer = fit(with_noise, method="kernel", blocks="30,8")
    equal = fit(with_noise, method="kernel", blocks="30,8", block_weights="equal")
    assert len(scorer.model.kernel.bandwidths) == 2
    weights = scorer.model.choices()["block_weights"]
    assert weights[1] <= 0.1 and sum(weights) == pytest.approx(1.0)
    without = accuracies(fit(small_dataset, method="kernel"), small_dataset)
    assert accuracies(scorer, with_noise).zsl > max(without.zsl - 5, accuracies(equal, with_noise).zsl)


def test_given_weights_are_those_of_a_weighted_mean_of_kernels(with_noise):
    seen = torch.from_numpy(with_noise.descriptors[with_noise.seen])
    config = KernelConfig(blocks="30,8", block_weights="3,1")
    kernel = DescriptorKernel.fit(seen, config, 0, config.fixed_weights(2))
    features = kernel(seen)
    alone = [DescriptorKernel.fit(part, KernelConfig(), 0)(part) for part in (seen[:, :30], seen[:, 30:])]
    expected = 0.75 * alone[0] @ alone[0].T + 0.25 * alone[1] @ alone[1].T
    torch.testing.assert_close(features @ features.T, expected, atol=2e-3, rtol=0)


def test_weights_do_not_depend_on_classes_that_a_fit_does_not_see(with_noise):
    other = with_noise.descriptors.copy()
    other[~with_noise.seen] = other[~with_noise.seen][::-1]
    fits = [fit(replace(with_noise, descriptors=d), "kernel", blocks="30,8") for d in (with_noise.descriptors, other)]
    assert fits[0].model.choices() == fits[1].model.choices()


@pytest.mark.parametrize("weights", ["1", "1,2,3", "-1,2", "0,0", "nan,1", "a,b"])
def test_weights_that_do_not_fit_the_blocks_are_refused(with_noise, weights):
    with pytest.raises(ConfigError, match=r"block_weights is .*a number from 0 for each of the 2 parts"):
        fit(with_noise, method="kernel", blocks="30,8", block_weights=weights, calibration="none")


def test_one_block_is_fitted_and_stored_as_before(small_dataset):
    scorer = fit(small_dataset, method="kernel", recipe="closed-form", calibration="none")
    assert "kernel.weights" not in scorer.model.state_dict() and not scorer.model.choices()
    assert "block_weights" not in scorer.config.as_dict()


def test_a_model_with_chosen_weights_is_saved_loaded_and_explained(with_noise, tmp_path):
    scorer = fit(with_noise, method="kernel", blocks="30,8", recipe="closed-form", calibration="none")
    loaded, rows = Scorer.load(scorer.save(tmp_path)), with_noise.features[:20]
    assert np.array_equal(loaded.scores(rows), scorer.scores(rows))
    assert loaded.model.choices() == scorer.model.choices()
    for explanation in loaded.explain(rows, top=4):
        values = [entry["contribution"] for entry in explanation["attributes"]]
        assert sum(values) == pytest.approx(explanation["difference"])


def test_thousands_of_classes_stay_quick():
    data = synthetic(SyntheticConfig(classes=3000, unseen=500, rows=9000, features=64, attributes=40))
    scorer = fit(data, method="kernel", recipe="closed-form", calibration="none", landmarks=300)
    assert scorer.prototypes().shape == (3000, 65)


@pytest.mark.parametrize(
    ("encoder", "found"),
    [
        ({"parts": [{"d_z": 8}, {"d_z": 12}]}, "8,12"),
        ({"parts": [{"d_z": 8}, {"d_z": 8}]}, ""),  # features of another encoder
        ({"parts": [{"name": "a"}]}, ""),
        ({"parts": "a"}, ""),
        ({"parts": ["a"]}, ""),
        ("free text", ""),
    ],
)
def test_features_of_several_encoders_are_found_by_their_record(encoder, found):
    data = synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=20))
    recorded = replace(data, provenance=Provenance({"encoder": json.dumps(encoder), "descriptor_blocks": "1,x"}))
    config = METHODS["kernel"].recipes["reference"](recorded)
    assert (config.feature_blocks, config.blocks) == (found, "")
    widths = fit(recorded, method="kernel", calibration="none", dimensions=10).model.geometry.widths
    assert widths == ([8, 10] if found else [10])


def test_the_recipe_earlier_has_the_settings_of_stored_models(small_dataset):
    assert METHODS["kernel"].recipes["earlier"](small_dataset) == KernelConfig()


def test_nothing_in_the_default_depends_on_the_dataset(small_dataset):
    other = synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=8))
    recipe = METHODS["kernel"].recipes["reference"]
    assert recipe(small_dataset) == recipe(other)


@pytest.mark.slow
def test_real_cub_beats_the_mlp_by_far(real_data, accuracies):
    from classnorm.data import load

    data = load(real_data / "xlsa17" / "data" / "CUB", features="efficientnet_lite0")
    result = accuracies(fit(data, method="kernel"), data)
    assert result.harmonic > 62  # the reference recipe of classnorm: 55
    assert result.zsl > 68


def test_a_power_of_the_descriptors_equals_powered_descriptors(small_dataset):
    powered = replace(
        small_dataset, descriptors=np.sign(small_dataset.descriptors) * np.abs(small_dataset.descriptors) ** 0.5
    )
    settings = {"method": "kernel", "calibration": "none", "dimensions": 8}
    rows = small_dataset.features[small_dataset.test_rows]
    one = fit(small_dataset, **settings, descriptor_power=0.5).scores(rows)
    np.testing.assert_allclose(one, fit(powered, **settings, descriptor_power=1.0).scores(rows), atol=1e-3)
    assert np.abs(one - fit(small_dataset, **settings).scores(rows)).max() > 0.1
