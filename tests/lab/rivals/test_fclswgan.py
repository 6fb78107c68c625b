"""f-CLSWGAN: its loss against autograd, generated features, and classes added after training."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from classnorm.methods import FitContext, resolve
from classnorm.scoring import Scorer, fit
from classnorm_lab.rivals.fclswgan import METHOD
from classnorm_lab.rivals.parts.generator import Critic, critic_loss

QUICK = {"hidden": 128, "epochs": 15, "lr": 1e-3, "classifier_lr": 1e-2, "classifier_epochs": 10, "calibration": "none"}
TINY = QUICK | {"hidden": 16, "epochs": 3, "classifier_epochs": 2, "synthesized": 20}


@pytest.fixture(scope="module")
def world(small_dataset):
    """The small dataset without 5 of its unseen classes, and those 5 apart: features, labels and descriptors."""
    new = np.flatnonzero(~small_dataset.seen)[:5]
    part = small_dataset.restricted(np.setdiff1d(np.arange(small_dataset.n_classes), new))
    is_new = np.isin(small_dataset.labels, new)
    table = {small_dataset.class_names[c]: small_dataset.descriptors[c] for c in new}
    return part, small_dataset.features[is_new], np.searchsorted(new, small_dataset.labels[is_new]), table


@pytest.fixture(scope="module")
def scorer(world):
    return fit(world[0], "fclswgan", **QUICK)


def quick_fit(dataset, context=None, seed=0, **changes):
    config = resolve(dataset, "fclswgan", **(TINY | changes))[1]
    return METHOD.fit(dataset, config, seed, context or FitContext(torch.device("cpu")))


def test_the_loss_of_the_critic_and_its_gradients_equal_those_by_double_backward():
    generator = torch.Generator().manual_seed(0)
    critic = Critic(d_a=5, d_z=7, hidden=11).double()
    real, fake = (torch.rand(6, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    descriptors = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    mix = torch.rand(6, 1, generator=generator, dtype=torch.float64)

    between = (mix * real + (1 - mix) * fake).requires_grad_()
    [slope] = torch.autograd.grad(critic(between, descriptors).sum(), between, create_graph=True)
    penalty = ((slope.pow(2).sum(dim=1).sqrt() - 1) ** 2).mean()
    expected = critic(fake, descriptors).mean() - critic(real, descriptors).mean() + 10 * penalty
    ours = critic_loss(critic, real, fake, descriptors, mix, 10.0)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    parameters = list(critic.parameters())
    by_double_backward = torch.autograd.grad(expected, parameters, allow_unused=True)
    for one, other in zip(torch.autograd.grad(ours, parameters, allow_unused=True), by_double_backward, strict=True):
        zero = torch.zeros(1, dtype=torch.float64)
        torch.testing.assert_close(zero if one is None else one, zero if other is None else other, rtol=1e-9, atol=1e-9)


def test_generated_features_lie_nearest_to_the_mean_of_their_own_class(scorer, world):
    data = world[0]
    unseen = np.flatnonzero(~data.seen)
    model = scorer.model
    generated = model.synthesize(torch.from_numpy(data.descriptors[unseen]), 50, torch.Generator().manual_seed(3))
    means = torch.stack(
        [model.scale(torch.from_numpy(data.features[data.labels == c])).mean(dim=0) for c in unseen]
    )  # [5, d_z]
    nearest = torch.cdist(generated, means[None]).argmin(dim=2)  # [5, 50]
    assert float((nearest == torch.arange(len(unseen))[:, None]).float().mean()) > 0.3  # chance is 0.2


def test_generated_features_are_non_negative_exactly_where_the_data_are(world):
    descriptors = torch.from_numpy(world[0].descriptors)
    for final_relu in (True, False):
        model = quick_fit(world[0], epochs=1, final_relu=final_relu).model
        smallest = float(model.synthesize(descriptors, 20, torch.Generator().manual_seed(0)).min())
        assert (smallest >= 0) == final_relu


def test_classes_added_after_training_are_recognised_far_above_chance(scorer, world):
    _, features, labels, table = world
    more = scorer.add_classes(table)
    among_themselves = more.only(list(table)).scores(features).argmax(axis=1)
    assert (among_themselves == labels).mean() > 0.4  # chance is 20 %
    among_all = more.scores(features).argmax(axis=1)
    assert (among_all == len(scorer.class_names) + labels).mean() > 0.1  # chance is 2.5 %


def test_new_classes_do_not_change_the_scores_of_known_ones(scorer, world):
    part, _, _, table = world
    more = scorer.add_classes(table).scores(part.features[:30])
    # Their rows are the same to the bit, but a product of another shape may round differently.
    np.testing.assert_allclose(
        more[:, : len(scorer.class_names)], scorer.scores(part.features[:30]), rtol=1e-5, atol=1e-5
    )


def test_the_row_of_a_new_class_depends_only_on_its_descriptor(scorer, world):
    table = world[3]
    together = scorer.add_classes(table).prototypes()[-len(table) :]
    for i, (name, descriptor) in enumerate(table.items()):
        alone = scorer.only(scorer.class_names[:2]).add_classes({name: descriptor}).prototypes()[-1]
        np.testing.assert_allclose(alone, together[i], rtol=1e-3, atol=1e-4)


def test_a_saved_model_gives_known_and_new_classes_the_same_scores(scorer, world, tmp_path):
    _, features, _, table = world
    loaded = Scorer.load(scorer.save(tmp_path))
    expected = scorer.add_classes(table).scores(features[:40])
    assert np.array_equal(loaded.add_classes(table).scores(features[:40]), expected)


def test_a_known_class_is_known_again_after_the_rounding_of_a_table(scorer, world):
    part = world[0]
    name = part.class_names[0]
    rounded = [float(f"{value:.6g}") for value in part.descriptors[0]]
    again = scorer.only(part.class_names[1:]).add_classes({name: rounded})
    np.testing.assert_array_equal(again.prototypes()[-1], scorer.prototypes()[0])


def test_progress_and_history_report_the_same_epochs(world, watching):
    reports = []
    with watching(lambda _, epoch: reports.append(epoch)):
        fitted = quick_fit(world[0], FitContext(torch.device("cpu")))
    assert [(epoch.done, epoch.total) for epoch in reports] == [(1, 3), (2, 3), (3, 3)]
    assert [epoch.note for epoch in reports] == [f"loss {record['loss']:.3f}" for record in fitted.history]


def test_without_unseen_classes_the_classifier_has_the_real_rows_alone(seen_only):
    model = quick_fit(seen_only).model
    assert float(model.counts.sum()) == len(seen_only.split.train)


def test_a_constant_feature_does_no_harm(world):
    part = world[0]
    features = np.concatenate([part.features, np.full((part.n_rows, 1), 3.0, np.float32)], axis=1)
    scores = fit(replace(part, features=features), "fclswgan", **TINY).scores(features[:20])
    assert np.isfinite(scores).all()
