"""DCN: its loss against the formula, and what the entropy over the unseen classes does."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from classnorm.methods import FitContext, resolve
from classnorm.scoring import fit
from classnorm_lab.rivals.dcn import METHOD, DCNConfig, dcn_loss

CPU = torch.device("cpu")
QUICK = {"hidden": 128, "epochs": 20, "lr": 1e-3, "calibration": "none"}
TINY = QUICK | {"hidden": 16, "epochs": 3}


def quick_fit(dataset, context=None, seed=0, **changes):
    config = resolve(dataset, "dcn", **(TINY | changes))[1]
    return METHOD.fit(dataset, config, seed, context or FitContext(CPU))


def same_weights(one, other):
    one, other = one.model.state_dict(), other.model.state_dict()
    return all(torch.equal(one[name], other[name]) for name in one)


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_the_loss_is_the_cross_entropy_over_the_seen_plus_the_entropy_over_the_unseen_classes():
    generator = np.random.default_rng(0)
    rows, seen, unseen = (generator.normal(size=(n, 5)) for n in (7, 4, 3))
    labels = generator.integers(0, 4, size=7)
    config = DCNConfig(scale=2.0, unseen_scale=0.5, entropy_weight=0.7)
    p, q = softmax(2.0 * rows @ seen.T), softmax(0.5 * rows @ unseen.T)
    expected = -np.log(p[np.arange(7), labels]).mean() - 0.7 * (q * np.log(q)).sum(axis=1).mean()
    ours = dcn_loss(*map(torch.from_numpy, (rows, labels, seen, unseen)), config)
    assert float(ours) == pytest.approx(expected, rel=1e-9)


def test_the_first_loss_is_that_of_rows_at_the_origin(small_dataset):
    """Small initial weights give every class the same probability."""
    config = {"epochs": 1, "lr": 1e-9, "scale": 1e-3, "unseen_scale": 1e-3, "entropy_weight": 3.0}
    n_seen, n_unseen = small_dataset.seen.sum(), (~small_dataset.seen).sum()
    expected = np.log(n_seen) + 3.0 * np.log(n_unseen)
    assert quick_fit(small_dataset, **config).history[0]["loss"] == pytest.approx(expected, rel=1e-3)


def test_logits_are_the_scaled_products_of_the_two_embeddings(small_dataset):
    scorer = fit(small_dataset, "dcn", **TINY, scale=0.8)
    weights = {name: value.double().numpy() for name, value in scorer.model.state_dict().items()}
    features = small_dataset.features[:7].astype(float)
    hidden = np.maximum(features @ weights["hidden.weight"].T + weights["hidden.bias"], 0)
    rows = np.tanh(hidden @ weights["output.weight"].T + weights["output.bias"])
    descriptors = small_dataset.descriptors.astype(float)
    classes = 10 * np.tanh(descriptors / np.linalg.norm(descriptors, axis=1, keepdims=True))
    np.testing.assert_allclose(scorer.logits(small_dataset.features[:7]), 0.8 * rows @ classes.T, rtol=1e-4, atol=1e-4)


def test_the_entropy_term_makes_training_rows_choose_among_the_unseen_classes(small_dataset):
    """The loss has +λH(q): the larger λ, the lower the entropy of the probabilities of unseen classes."""
    rows = small_dataset.features[small_dataset.split.train]

    def entropy(weight):
        scorer = fit(small_dataset, "dcn", **(QUICK | {"epochs": 10}), unseen_scale=1.0, entropy_weight=weight)
        q = softmax(scorer.logits(rows)[:, ~small_dataset.seen].astype(float) / scorer.config.scale)
        return -(q * np.log(q + 1e-12)).sum(axis=1).mean()

    without, some, much = (entropy(weight) for weight in (0.0, 0.3, 1.0))
    assert some < 0.96 * without
    assert much < 0.75 * without  # about half


def test_training_uses_the_descriptors_of_unseen_classes_only_for_the_entropy(small_dataset):
    descriptors = small_dataset.descriptors.copy()
    descriptors[~small_dataset.seen] = descriptors[~small_dataset.seen][::-1, ::-1]
    other = replace(small_dataset, descriptors=descriptors)
    assert same_weights(quick_fit(small_dataset, entropy_weight=0.0), quick_fit(other, entropy_weight=0.0))
    assert not same_weights(quick_fit(small_dataset), quick_fit(other))


def test_without_unseen_classes_there_is_no_entropy_term(seen_only):
    assert same_weights(quick_fit(seen_only), quick_fit(seen_only, entropy_weight=0.0))


def test_the_paper_recipe_takes_a_hundred_thousand_steps(small_dataset):
    config = resolve(small_dataset, "dcn", "paper")[1]
    steps = config.epochs * -(-len(small_dataset.split.train) // config.batch_size)
    assert steps == pytest.approx(100_000, rel=0.01)
