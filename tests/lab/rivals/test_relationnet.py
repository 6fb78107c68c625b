"""RelationNet: its factorised scores, its loss, and class normalization in its attribute network."""

import math

import numpy as np
import pytest
import torch

from classnorm.data import SyntheticConfig, synthetic
from classnorm.methods import resolve
from classnorm.nn import ClassStandardization
from classnorm.scoring import fit
from classnorm_lab.rivals import relationnet
from classnorm_lab.rivals.relationnet import base_rate_logit, relation_loss


def tiny(**changes):
    """An untrained model of 5 descriptor and 7 feature dimensions, and something to score."""
    config = relationnet.RelationNetConfig(hidden=11, relation_hidden=13, **changes)
    model = relationnet.build(config, 5, 7, {}).eval()
    generator = torch.Generator().manual_seed(0)
    return model, torch.randn(9, 7, generator=generator), torch.rand(6, 5, generator=generator)


def concatenated(model, features, prototypes):
    """The relation network as published: one layer over [prototype, feature] of every pair."""
    first = torch.cat([model.of_prototype.weight, model.of_feature.weight], dim=1)
    pairs = torch.cat(
        [prototypes[None].expand(len(features), -1, -1), features[:, None].expand(-1, len(prototypes), -1)], dim=2
    )
    return model.output((pairs @ first.T + model.of_prototype.bias).relu())[..., 0]


@pytest.mark.parametrize("grad", [True, False])
def test_factorised_scores_equal_those_of_the_concatenation(grad):
    model, features, descriptors = tiny()
    with torch.set_grad_enabled(grad):
        prototypes = model.prototypes(descriptors)
        expected = concatenated(model, features, prototypes)
        torch.testing.assert_close(model.logits(features, prototypes), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 13 * 4, 13 * 6 * 2, 13 * 6 * 4])
def test_evaluation_in_bounded_memory_gives_the_same_scores(monkeypatch, chunk):
    model, features, descriptors = tiny()
    prototypes = model.prototypes(descriptors)
    whole = model.logits(features, prototypes).detach()
    largest = 0
    relate = type(model)._relate

    def measured(self, rows, classes):
        nonlocal largest
        largest = max(largest, len(rows) * classes.numel())
        return relate(self, rows, classes)

    monkeypatch.setattr(relationnet, "_CHUNK", chunk)
    monkeypatch.setattr(type(model), "_relate", measured)
    with torch.inference_mode():
        torch.testing.assert_close(model.logits(features, prototypes), whole, rtol=1e-5, atol=1e-5)
    assert largest <= max(chunk, 13)


def test_the_loss_is_the_mean_squared_error_of_all_pairs():
    scores, targets = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([2, 0, 0, 1])
    expected = np.mean(
        [(1 / (1 + math.exp(-scores[i, j])) - (targets[i] == j).item()) ** 2 for i in range(4) for j in range(3)]
    )
    assert float(relation_loss(scores, targets)) == pytest.approx(expected, rel=1e-5)


def test_the_base_rate_is_the_share_of_matching_pairs_in_random_batches():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(20, (5000,), generator=generator)
    batches = labels[torch.randint(5000, (2000, 16), generator=generator)]
    classes = np.mean([len(batch.unique()) for batch in batches])
    assert 1 / (1 + math.exp(-base_rate_logit(labels, 16))) == pytest.approx(1 / classes, rel=0.02)
    assert base_rate_logit(torch.zeros(3, dtype=torch.int64), 2) == 0  # one class only: no infinite bias


def test_class_standardization_sees_all_seen_classes_not_those_of_the_batch(small_dataset, monkeypatch):
    sizes = set()
    forward = ClassStandardization.forward

    def recorded(self, hidden):
        if self.training:
            sizes.add(len(hidden))
        return forward(self, hidden)

    monkeypatch.setattr(ClassStandardization, "forward", recorded)
    settings = {"epochs": 1, "batch_size": 4, "hidden": 8, "relation_hidden": 8}
    fit(small_dataset, method="relationnet", calibration="none", class_norm=True, **settings)
    assert sizes == {30}


def test_two_seen_classes_and_batches_of_one_row_are_enough_to_train():
    dataset = synthetic(SyntheticConfig(classes=4, unseen=2, rows=40, features=8, attributes=5))
    settings = {"hidden": 8, "relation_hidden": 8, "epochs": 2, "batch_size": 1}
    for class_norm in (False, True):
        scorer = fit(dataset, method="relationnet", calibration="none", class_norm=class_norm, **settings)
        assert np.isfinite(scorer.scores(dataset.features)).all()


def test_the_class_norm_recipe_is_the_reference_with_class_normalization(small_dataset):
    reference = resolve(small_dataset, "relationnet")[1].as_dict()
    normalized = resolve(small_dataset, "relationnet", "class-norm")[1].as_dict()
    assert {name for name in reference if reference[name] != normalized[name]} == {"class_norm"}


def test_the_paper_recipe_has_the_published_number_of_steps_and_drops(small_dataset):
    config = resolve(small_dataset, "relationnet", "paper")[1]
    steps = config.epochs * -(-len(small_dataset.split.train) // config.batch_size)
    assert steps == pytest.approx(500_000, rel=0.01)
    assert config.lr_drop_at * steps == pytest.approx(30_000, rel=0.01)
