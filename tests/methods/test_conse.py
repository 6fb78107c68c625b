"""ConSE: convex combinations of seen descriptors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from classnorm.methods.conse import convex_weights
from classnorm.scoring import fit


def trained(dataset, **settings):
    return fit(dataset, method="conse", epochs=8, lr=3e-3, calibration="none", **settings)


@pytest.fixture(scope="module")
def model(small_dataset):
    return trained(small_dataset).model


def with_top(model, top):
    """The same classifier with another T."""
    model.top = top
    return model


@pytest.fixture(scope="module")
def features(small_dataset):
    return torch.from_numpy(small_dataset.features[small_dataset.test_rows])


@pytest.fixture(scope="module")
def probabilities(model, features):
    """The softmax over the seen classes, from the weights."""
    normalized = (features - model.feature_normalization.mean) / model.feature_normalization.std
    exponentials = (normalized @ model.weight.T + model.bias).detach().double().exp()
    return exponentials / exponentials.sum(dim=1, keepdim=True)


@pytest.fixture(scope="module")
def seen_descriptors(model, small_dataset):
    table = torch.from_numpy(small_dataset.descriptors[small_dataset.seen])
    return model.attribute_normalization(table).double()


def test_with_all_classes_the_embedding_is_the_expected_descriptor(model, features, probabilities, seen_descriptors):
    expected = sum(probabilities[:, c, None] * seen_descriptors[c] for c in range(30))
    for top in (30, 1000):  # more than there are is all
        embedded = with_top(model, top).embed(features).double()
        torch.testing.assert_close(embedded, expected, rtol=1e-4, atol=1e-4)


def test_with_one_class_the_embedding_is_the_descriptor_of_the_predicted_class(
    model, features, probabilities, seen_descriptors
):
    embedded = with_top(model, 1).embed(features).double()
    torch.testing.assert_close(embedded, seen_descriptors[probabilities.argmax(dim=1)], rtol=1e-5, atol=1e-5)


def test_with_one_class_the_class_that_the_classifier_predicts_ranks_first(small_dataset):
    scorer = trained(small_dataset, top=1)
    rows = small_dataset.features[small_dataset.split.train]
    normalized = scorer.model.feature_normalization(torch.from_numpy(rows))
    predicted = scorer.model.class_logits(normalized).argmax(dim=1).numpy()
    logits = scorer.logits(rows)
    assert np.array_equal(np.flatnonzero(small_dataset.seen)[predicted], logits.argmax(axis=1))
    np.testing.assert_allclose(logits.max(axis=1), 1.0, atol=1e-5)
    assert (logits.argmax(axis=1) == small_dataset.labels[small_dataset.split.train]).mean() > 0.8


@given(seed=st.integers(0, 999), n_seen=st.integers(2, 12), top=st.integers(1, 15))
def test_only_the_likeliest_classes_contribute_in_proportion(seed, n_seen, top):
    probabilities = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(n_seen), 5))
    weights = convex_weights(probabilities, top)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(5, dtype=torch.float64))
    assert (weights >= 0).all()
    for row, weight in zip(probabilities.numpy(), weights.numpy(), strict=True):
        best = np.argsort(-row)[:top]
        expected = np.zeros(n_seen)
        expected[best] = row[best] / row[best].sum()
        np.testing.assert_allclose(weight, expected, rtol=1e-12)
