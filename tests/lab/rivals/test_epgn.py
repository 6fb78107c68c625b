"""E-PGN: its losses against formulas, and what episodes are for."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from classnorm.data import ZeroShotDataset
from classnorm.methods import FitContext, TrainingRows, resolve
from classnorm.scoring import fit
from classnorm.training import seeded
from classnorm_lab.rivals.epgn import METHOD, EPGNModel, EpisodicTraining, PairCritic

CPU = FitContext(torch.device("cpu"))
QUICK = {"hidden": 64, "critic_hidden": 16, "epochs": 10, "steps": 20, "lr": 3e-3, "calibration": "none"}
TINY = QUICK | {"hidden": 8, "epochs": 3, "steps": 4, "refine_steps": 2}


def quick_fit(dataset, context=CPU, seed=0, **changes):
    return METHOD.fit(dataset, resolve(dataset, "epgn", **(TINY | changes))[1], seed, context)


def same_weights(one, other):
    one, other = one.model.state_dict(), other.model.state_dict()
    return all(torch.equal(one[name], other[name]) for name in one)


def with_features(dataset, features):
    split = dataset.split
    return ZeroShotDataset.from_arrays(
        features, dataset.labels, dataset.descriptors, dataset.class_names,
        train=split.train, test_seen=split.test_seen, test_unseen=split.test_unseen,
    )  # fmt: skip


@pytest.fixture(scope="module")
def uneven():
    """50 classes, 30 of them seen, in 20 dimensions: 10 nearly noiseless ones, and 10 whose noise hides the classes."""
    generator = np.random.default_rng(0)
    descriptors, labels = generator.normal(size=(50, 6)), np.repeat(np.arange(50), 12)
    noise = np.where(np.arange(20) < 10, 0.3, 8.0) * generator.normal(size=(600, 20))
    features = descriptors[labels] @ generator.normal(size=(6, 20)) + noise
    names = [f"c{i}" for i in range(50)]
    return ZeroShotDataset.from_arrays(
        features, labels, descriptors, names, train=np.arange(360), test_unseen=np.arange(360, 600)
    )


@pytest.mark.slow
def test_episodes_raise_the_accuracy_on_classes_without_rows(uneven):
    """Least squares fits all dimensions alike; only telling held-out classes apart teaches which of them count."""

    def accuracy(refine_steps):
        settings = QUICK | {"epochs": 40, "steps": 3, "lr": 5e-3, "attribute_normalization": "none"}
        refinement = {"refine_steps": refine_steps, "refine_scale": 60.0, "refine_rate": 0.3}
        rows = uneven.split.test_unseen
        hits = []
        for seed in range(2):
            scorer = fit(uneven, "epgn", seed=seed, **settings, **refinement)
            among_unseen = scorer.only([f"c{i}" for i in range(30, 50)]).scores(uneven.features[rows])
            hits.append((30 + among_unseen.argmax(axis=1) == uneven.labels[rows]).mean())
        return np.mean(hits)

    assert accuracy(refine_steps=20) > accuracy(refine_steps=0) + 0.1


def test_rows_of_held_out_classes_play_no_part_in_the_other_steps_of_an_episode(uneven):
    held = torch.randperm(30, generator=seeded(0, 2))[:10].numpy()
    train = uneven.split.train
    settings = {"epochs": 1, "refine_rate": 1e-30, "final_relu": False}  # such a rate changes no weight
    for rows, same in ((train[np.isin(uneven.labels[train], held)], True), (train[:1], 0 in held)):
        features = uneven.features.copy()
        features[rows] *= -1  # leaves the scale of the features as it is
        assert (
            same_weights(quick_fit(with_features(uneven, features), **settings), quick_fit(uneven, **settings)) == same
        )


def test_the_loss_is_the_sum_of_squared_errors_and_cross_entropies_in_both_spaces(uneven):
    """One step over all rows at a vanishing rate reports the loss of the networks it leaves behind."""
    changes = {"epochs": 1, "steps": 1, "batch_size": 360, "lr": 1e-12, "refine_steps": 0}
    weights = {"regression_weight": 3.0, "classification_scale": 0.2, "attribute_normalization": "none"}
    config = resolve(uneven, "epgn", **(TINY | changes | weights))[1]
    rows = TrainingRows.of(uneven, torch.device("cpu"))
    model = EPGNModel(config, 6, 20, seed=4)
    model.scale.fill_(2.0)
    training = EpisodicTraining(model, rows, config, seed=4)
    [record] = training.run(CPU)
    x, a, y = rows.features.double().numpy() / 2.0, rows.descriptors.double().numpy(), rows.labels.numpy()
    with torch.no_grad():
        p = model.prototypes(rows.descriptors).double().numpy()
        inferred = training.reverse(rows.features / 2.0).double().numpy()
    expected = 3.0 * (((p[y] - x) ** 2).mean() + ((inferred - a[y]) ** 2).mean())
    for logits in (x @ p.T, inferred @ a.T):
        expected -= log_softmax(0.2 * logits, axis=1)[np.arange(360), y].mean()
    assert record["loss"] == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_the_critic_and_its_gradients_equal_those_by_double_backward():
    draws = torch.Generator().manual_seed(0)
    critic = PairCritic(5, 7, 11, draws).double()
    real, fake = (
        tuple(torch.randn(6, d, generator=draws, dtype=torch.float64) for d in (7, 5)) for _ in ("real", "fake")
    )
    mix = torch.rand(6, 1, generator=draws, dtype=torch.float64)
    between = [(mix * one + (1 - mix) * other).requires_grad_() for one, other in zip(real, fake, strict=True)]
    slopes = torch.cat(torch.autograd.grad(critic(*between).sum(), between, create_graph=True), dim=1)
    penalty = ((slopes.pow(2).sum(dim=1).sqrt() - 1) ** 2).mean()
    expected = critic(*fake).mean() - critic(*real).mean() + 7.0 * penalty
    ours = critic.loss(real, fake, mix, 7.0)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    weights = [critic.feature.weight, critic.descriptor.weight, critic.feature.bias, critic.score.weight]
    for one, other in zip(torch.autograd.grad(ours, weights), torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_logits_are_negative_squared_distances_of_scaled_features(small_dataset):
    scorer = fit(small_dataset, "epgn", **TINY)
    scale = np.sqrt(np.square(small_dataset.features[small_dataset.split.train].astype(np.float64)).mean())
    differences = small_dataset.features[:7, None] / scale - scorer.prototypes()[None]
    np.testing.assert_allclose(
        scorer.logits(small_dataset.features[:7]), -np.square(differences).sum(axis=2), rtol=1e-4, atol=1e-4
    )


def test_the_unit_of_the_features_does_not_matter(uneven):
    scaled = with_features(uneven, 1024 * uneven.features)  # a power of 2: exact
    one, other = quick_fit(uneven).model, quick_fit(scaled).model
    assert torch.equal(one.generator.output.weight, other.generator.output.weight)


def test_features_that_are_all_zero_give_finite_scores(uneven):
    model = quick_fit(with_features(uneven, np.zeros_like(uneven.features))).model
    assert model.prototypes(torch.from_numpy(uneven.descriptors)).isfinite().all()


def test_the_paper_recipe_has_the_published_networks_and_steps(uneven):
    config = resolve(uneven, "epgn", "paper")[1]
    assert (config.hidden, config.critic_hidden, config.held_out, config.lr) == (1800, 1600, 10, 5e-5)
    assert config.refine_rate == 0.1
    assert not config.final_relu  # features of either sign
