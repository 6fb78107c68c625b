"""ZSML: tasks of disjoint classes, first-order meta-gradients, and what meta-training is for."""

import copy

import numpy as np
import pytest
import torch

from classnorm.methods import FitContext, resolve
from classnorm.scoring import fit
from classnorm.training import seeded
from classnorm_lab.rivals.parts.adversarial import ScaledRows
from classnorm_lab.rivals.zsml import ZSMLModel, ZSMLTraining

CPU = FitContext(torch.device("cpu"))
QUICK = {
    "hidden": 128,
    "noise": 20,
    "epochs": 10,
    "tasks": 16,
    "inner_lr": 1e-2,
    "classifier_lr": 1e-2,
    "classifier_epochs": 10,
}
QUICK |= {"calibration": "none"}
TINY = QUICK | {"hidden": 16, "noise": 5, "epochs": 3, "ways": 5, "classifier_epochs": 2, "synthesized": 20}


def make_training(dataset, **changes):
    """The training before its first task."""
    config = resolve(dataset, "zsml", **(TINY | changes))[1]
    model = ZSMLModel(config, dataset.d_a, dataset.d_z, dataset.n_classes)
    train = dataset.split.train
    features = torch.from_numpy(dataset.features[train])
    model.fit_scale(features)
    seen = np.flatnonzero(dataset.seen)
    labels = torch.from_numpy(np.searchsorted(seen, dataset.labels[train]))
    descriptors = model.attributes(torch.from_numpy(dataset.descriptors))
    return ZSMLTraining(model, ScaledRows(model.scale(features), labels, descriptors[seen], descriptors[:0]), config, 0)


def sgd(training, rate):
    return torch.optim.SGD([group | {"lr": rate} for group in training.parameter_groups()], rate)


def test_support_and_query_of_a_task_have_different_classes_and_the_given_sizes(small_dataset):
    training = make_training(small_dataset, ways=7, shots=5, queries=3, tasks=9)
    tasks = list(training.tasks.epoch(1))
    assert len(tasks) == 9
    for rows in tasks:
        support, query = training.task(rows, seeded(0))
        assert [*support.labels.bincount()[support.labels.unique()]] == [5] * 7
        assert [*query.labels.bincount()[query.labels.unique()]] == [3] * 7
        assert not set(support.labels.tolist()) & set(query.labels.tolist())


@pytest.mark.parametrize(("shots", "queries"), [(2, 4), (4, 2)])
def test_either_part_of_a_task_may_have_more_rows(small_dataset, shots, queries):
    training = make_training(small_dataset, shots=shots, queries=queries)
    support, query = training.task(next(training.tasks.epoch(0)), seeded(0))
    assert (len(support.labels), len(query.labels)) == (5 * shots, 5 * queries)


def test_the_noise_has_a_width_of_its_own(small_dataset):
    training = make_training(small_dataset, noise=9)
    assert training.model.generator.hidden.in_features == 9 + small_dataset.d_a
    table = torch.from_numpy(small_dataset.descriptors)
    assert training.model.synthesize(table, 4, seeded(0)).shape == (small_dataset.n_classes, 4, small_dataset.d_z)


def test_the_classifier_starts_trained_on_real_rows(small_dataset):
    training = make_training(small_dataset, classifier_epochs=10)
    with torch.no_grad():
        right = training.classifier(training.rows.features).argmax(dim=1) == training.rows.labels
    assert float(right.float().mean()) > 0.5  # chance is 3 %


def test_adaptation_is_gradient_descent_on_the_support(small_dataset):
    """Against optimizers of PyTorch, one for each side, on a copy."""
    training = make_training(small_dataset, inner_steps=3, critic_steps=2, inner_lr=0.05)
    other = copy.deepcopy(training)
    rows = next(training.tasks.epoch(0))
    training.adapt(training.task(rows, seeded(1))[0])
    support = other.task(rows, seeded(1))[0]
    critic = torch.optim.SGD(other.critic.parameters(), 0.05)
    generators = torch.optim.SGD([*other.model.generator.parameters(), *other.classifier.parameters()], 0.05)
    for _ in range(3):
        for optimizer, loss, times in ((critic, other.critic_loss, 2), (generators, other.generator_loss, 1)):
            for _ in range(times):
                other.networks.zero_grad()
                loss(support).backward()
                optimizer.step()
    for (name, one), two in zip(training.networks.named_parameters(), other.networks.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6, msg=name)


def test_a_meta_step_applies_gradients_at_the_adapted_weights_to_the_initial_ones(small_dataset):
    training = make_training(small_dataset, inner_lr=0.05)
    adapted = copy.deepcopy(training)
    rows = next(training.tasks.epoch(0))
    before = copy.deepcopy(training.networks.state_dict())
    training.meta_step(sgd(training, 0.1), *training.task(rows, seeded(1)))

    support, query = adapted.task(rows, seeded(1))
    adapted.adapt(support)
    critic_loss = adapted.critic_loss(query)
    generator_loss = adapted.generator_loss(query)
    adapted.critic.requires_grad_(False)
    generator_loss.backward(inputs=adapted.generator_parameters)
    adapted.critic.requires_grad_(True)
    critic_loss.backward()
    for name, parameter in adapted.networks.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            training.networks.state_dict()[name], before[name] - 0.1 * gradient, rtol=1e-4, atol=1e-6
        )


def rise_on_the_query(training):
    """How much steps on the support raise the generator's loss on the query, with the same noise; mean of 10 tasks."""
    rises = []
    for i, rows in zip(range(10), training.tasks.epoch(99), strict=False):
        copied = copy.deepcopy(training)
        support, query = copied.task(rows, seeded(i))
        losses = []
        for _ in ("before", "after"):
            query.draws.manual_seed(1000 + i)
            with torch.no_grad():
                losses.append(float(copied.generator_loss(query)))
            copied.adapt(support)
        rises.append(losses[1] - losses[0])
    return np.mean(rises)


@pytest.mark.slow
def test_steps_on_the_support_cost_other_classes_least_from_meta_trained_weights(small_dataset):
    """These steps make the classes of the support more likely, at the cost of those of the query."""
    quick = {"hidden": 64, "noise": 20, "epochs": 5, "tasks": 24, "classifier_lr": 1e-2, "classifier_epochs": 5}
    task = {"inner_steps": 5, "queries": 3, "classification_weight": 10.0}
    untrained, meta_trained = (make_training(small_dataset, inner_lr=0.03, **quick, **task) for _ in range(2))
    without_adaptation = make_training(small_dataset, inner_lr=1e-30, **quick, **task)
    meta_trained.run(CPU)
    without_adaptation.run(CPU)
    without_adaptation.config = untrained.config
    rise = rise_on_the_query(meta_trained)
    assert rise < 0.6 * rise_on_the_query(untrained)
    assert rise < 0.3 * rise_on_the_query(without_adaptation)


def test_logits_are_those_of_the_classifier_with_unit_variance_over_training_rows(small_dataset):
    scorer = fit(small_dataset, "zsml", **TINY)
    model, features = scorer.model, torch.from_numpy(small_dataset.features[small_dataset.split.train])
    with torch.no_grad():
        expected = model.classifier(model.scale(features)).numpy()
    ours = scorer.logits(features.numpy())
    np.testing.assert_allclose(ours * float(model.spread), expected, rtol=1e-3, atol=1e-4)
    assert ours.std() == pytest.approx(1.0, rel=0.05)  # every other row is enough to tell


def test_the_rates_of_generator_and_critic_are_set_apart(small_dataset):
    """A tiny rate of the critic leaves it at its initial weights."""
    training = make_training(small_dataset, epochs=1, critic_lr=1e-30)
    before = copy.deepcopy(training.networks.state_dict())
    training.run(CPU)
    for name, value in training.networks.state_dict().items():
        assert (float((value - before[name]).abs().max()) < 1e-20) == name.startswith("critic")


def test_the_paper_recipe_has_the_published_tasks_and_rates(small_dataset):
    config = resolve(small_dataset, "zsml", "paper")[1]
    assert (config.ways, config.shots, config.queries, config.inner_steps, config.noise) == (10, 5, 3, 5, 512)
    assert (config.inner_lr, config.critic_lr, config.lr) == (1e-3, 1e-5, 1e-3)
