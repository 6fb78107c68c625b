"""DeViSE, ALE and SJE: each loss against its formula written out, and what the three learn."""

import numpy as np
import pytest
import torch

from classnorm.methods import resolve
from classnorm.methods.ranking import ale_loss, devise_loss, sje_loss
from classnorm.scoring import fit

LOSSES = {"devise": devise_loss, "ale": ale_loss, "sje": sje_loss}


@pytest.fixture(params=[0, 1, 2])
def batch(request):
    generator = torch.Generator().manual_seed(request.param)
    scores = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    return scores, torch.randint(5, (7,), generator=generator)


def violations(scores, labels, margin):
    """The violations of each row as a list, by the definition."""
    return [
        [max(0.0, margin + float(row[c] - row[y])) for c in range(len(row)) if c != y]
        for row, y in zip(scores, labels.tolist(), strict=True)
    ]


@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_devise_sums_the_hinges_of_all_wrong_classes(batch, margin):
    expected = np.mean([sum(row) for row in violations(*batch, margin)])
    assert float(devise_loss(*batch, margin)) == pytest.approx(expected)


@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_ale_weighs_the_hinges_by_the_rank_of_the_right_class(batch, margin):
    expected = []
    for row in violations(*batch, margin):
        rank = sum(value > 0 for value in row)
        beta = sum(1 / i for i in range(1, rank + 1))
        expected.append(beta / rank * sum(row) if rank else 0.0)
    assert float(ale_loss(*batch, margin)) == pytest.approx(np.mean(expected))


def test_ale_with_equal_weights_is_devise(batch):
    ones = torch.ones(4, dtype=torch.float64)
    torch.testing.assert_close(ale_loss(*batch, 1.0, ones), devise_loss(*batch, 1.0))


def test_sje_takes_the_worst_violation_and_is_bounded_by_ale_and_devise(batch):
    expected = np.mean([max(row) for row in violations(*batch, 1.0)])
    assert float(sje_loss(*batch, 1.0)) == pytest.approx(expected)
    assert sje_loss(*batch, 1.0) <= devise_loss(*batch, 1.0)
    assert ale_loss(*batch, 1.0) <= devise_loss(*batch, 1.0)


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_is_left_to_learn_once_every_margin_is_kept(name):
    labels = torch.tensor([0, 2, 1])
    scores = (2.0 * torch.nn.functional.one_hot(labels, 4)).requires_grad_()
    loss = LOSSES[name](scores, labels, 1.0)
    loss.backward()
    assert loss == 0
    assert (scores.grad == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_agree_with_differences_of_the_loss(name, batch):
    scores, labels = batch
    assert torch.autograd.gradcheck(lambda s: LOSSES[name](s, labels, 0.7), scores.requires_grad_())


@pytest.mark.parametrize("name", LOSSES)
def test_scores_are_the_bilinear_form(small_dataset, name):
    scorer = fit(small_dataset, method=name, calibration="none", epochs=1, attribute_normalization="none")
    features = small_dataset.features[:5].astype(np.float64)
    W = scorer.model.compatibility.weight.detach().double().numpy()
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(scorer.logits(features), unit @ W @ small_dataset.descriptors.T, atol=1e-4)


@pytest.mark.parametrize(("name", "margin"), [("devise", 0.1), ("ale", 1.0), ("sje", 1.0)])
def test_the_paper_recipes_are_stochastic_gradient_descent_with_the_published_margin(small_dataset, name, margin):
    config = resolve(small_dataset, name, "paper")[1]
    assert (config.margin, config.batch_size, config.optimizer) == (margin, 1, "sgd")
