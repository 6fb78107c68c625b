"""SynC: synthesized classifiers, their limits, and the losses of the seen ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from classnorm.methods.sync import SynCConfig, SynCModel, one_versus_other, phantom_classifiers, structured
from classnorm.scoring import fit


def trained(dataset, **settings):
    return fit(dataset, method="sync", calibration="none", **({"epochs": 10} | settings))


def transformed(seed=0, n_seen=6, d_a=4, d_z=5, **settings):
    """A model with phantom classes at random seen descriptors, and these."""
    generator = torch.Generator().manual_seed(seed)
    model = SynCModel(SynCConfig(**settings), d_a, d_z, n_seen)
    seen = torch.rand(n_seen, d_a, generator=generator) + 0.1
    model.place(seen)
    with torch.no_grad():
        model.bases.copy_(torch.randn(n_seen, d_z, generator=generator))
    return model, seen


@given(seed=st.integers(0, 999), sigma=st.floats(0.01, 100.0), n_seen=st.integers(2, 9))
def test_the_alignment_is_a_convex_combination_for_any_class(seed, sigma, n_seen):
    model, _ = transformed(seed, n_seen, sigma=sigma)
    weights = model.alignment(torch.randn(20, 4, generator=torch.Generator().manual_seed(seed)))
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(20))


def test_the_alignment_is_the_normalised_gaussian_of_the_distance():
    model, seen = transformed(n_seen=3, sigma=0.7, attribute_normalization="none")
    classes = np.random.default_rng(1).random((5, 4))
    a, b = classes.astype(np.float32).astype(np.float64), seen.double().numpy()
    unit = np.mean([((b[i] - b[j]) ** 2).sum() for i in range(3) for j in range(3) if i != j])
    gauss = np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2) / (0.7**2 * unit))
    ours = model.alignment(torch.from_numpy(classes.astype(np.float32)))
    np.testing.assert_allclose(ours, gauss / gauss.sum(axis=1, keepdims=True), rtol=1e-4)


@given(seed=st.integers(0, 999))
def test_with_a_vanishing_width_a_seen_class_has_the_classifier_of_its_own_phantom(seed):
    model, seen = transformed(seed, sigma=1e-3)
    torch.testing.assert_close(model.prototypes(seen), model.bases.detach())


def test_with_a_huge_width_every_class_has_the_mean_classifier():
    model, seen = transformed(sigma=1e4)
    torch.testing.assert_close(
        model.prototypes(seen), model.bases.detach().mean(dim=0).expand(6, -1), rtol=1e-4, atol=1e-4
    )


@given(seed=st.integers(0, 999), sigma=st.floats(0.01, 100.0))
def test_classes_with_equal_descriptors_get_equal_classifiers(seed, sigma):
    model, _ = transformed(seed, sigma=sigma)
    classes = torch.rand(3, 4, generator=torch.Generator().manual_seed(seed))
    classifiers = model.prototypes(torch.cat([classes, classes]))
    assert torch.equal(classifiers[:3], classifiers[3:])


def test_phantom_classifiers_synthesize_the_trained_ones():
    model, seen = transformed(sigma=0.5)
    wanted = torch.randn(6, 5, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        model.bases.copy_(phantom_classifiers(model.alignment(seen), wanted))
    torch.testing.assert_close(model.prototypes(seen), wanted, rtol=1e-4, atol=1e-4)


def test_seen_classes_with_equal_descriptors_share_the_mean_of_their_classifiers():
    model, seen = transformed(sigma=0.5)
    seen[1] = seen[0]
    model.place(seen)
    wanted = torch.randn(6, 5, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        model.bases.copy_(phantom_classifiers(model.alignment(seen), wanted))
    expected = wanted.clone()
    expected[:2] = wanted[:2].mean(dim=0)
    torch.testing.assert_close(model.prototypes(seen), expected, rtol=1e-3, atol=1e-3)


def test_losses_are_squared_hinges_summed_or_of_the_worst_class():
    generator = np.random.default_rng(0)
    scores, labels = generator.standard_normal((7, 4)), generator.integers(4, size=7)
    margins = generator.random((4, 4)) * (1 - np.eye(4))
    each = [
        sum(max(0.0, 1.0 - (1 if c == label else -1) * row[c]) ** 2 for c in range(4))
        for row, label in zip(scores, labels, strict=True)
    ]
    assert float(one_versus_other(torch.from_numpy(scores), torch.from_numpy(labels))) == pytest.approx(np.mean(each))
    worst = [
        max(0.0, max(margins[label, c] + row[c] - row[label] for c in range(4) if c != label)) ** 2
        for row, label in zip(scores, labels, strict=True)
    ]
    ours = structured(*(torch.from_numpy(array) for array in (scores, labels, margins)))
    assert float(ours) == pytest.approx(np.mean(worst))


def test_training_reaches_the_minimum_of_the_regularised_loss_over_the_phantom_classifiers(small_dataset):
    """The gradient with respect to V, which is not what is trained, vanishes in comparison with that at zero."""
    scorer = trained(small_dataset, epochs=60, batch_size=2000, penalty=0.01)
    model, rows = scorer.model, small_dataset.split.train
    seen = np.flatnonzero(small_dataset.seen)
    x = model.feature_normalization(torch.from_numpy(small_dataset.features[rows])).double()
    labels = torch.from_numpy(np.searchsorted(seen, small_dataset.labels[rows]))
    S = model.alignment(torch.from_numpy(small_dataset.descriptors[seen])).detach().double()

    def gradient(bases):
        V = bases.detach().double().requires_grad_()
        (one_versus_other(x @ (S @ V).T, labels) + 0.005 * (S @ V).square().sum()).backward()
        return V.grad.norm()

    assert gradient(model.bases) < 0.02 * gradient(torch.zeros_like(model.bases))


def test_two_seen_classes_with_the_same_descriptor_can_be_trained(small_dataset):
    seen = np.flatnonzero(small_dataset.seen)
    descriptors = small_dataset.descriptors.copy()
    descriptors[seen[1]] = descriptors[seen[0]]
    scorer = trained(replace(small_dataset, descriptors=descriptors), epochs=2)
    logits = scorer.logits(small_dataset.features[:30])
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits[:, seen[1]], logits[:, seen[0]], atol=1e-5)
