"""CIZSL: the divergence against its definition and its limits, and what it does to hallucinated classes."""

import numpy as np
import pytest
import torch

from classnorm.data import SyntheticConfig, synthetic
from classnorm.methods import FitContext, resolve
from classnorm_lab.rivals.cizsl import CIZSLTraining, SharmaMittal, hallucinate, sharma_mittal
from classnorm_lab.rivals.parts.adversarial import generative_fit
from classnorm_lab.rivals.parts.generator import GenerativeModel

QUICK = {"hidden": 64, "epochs": 8, "lr": 1e-3, "critic_steps": 2, "classifier_lr": 3e-2, "classifier_epochs": 20}
CPU = FitContext(torch.device("cpu"))


@pytest.fixture(scope="module")
def dataset():
    return synthetic(SyntheticConfig(classes=16, unseen=4, rows=640, features=24, attributes=10))


def trained(dataset, **changes):
    """A short training; it holds the model."""
    games = []

    def training(*arguments):
        games.append(CIZSLTraining(*arguments))
        return games[-1]

    generative_fit(GenerativeModel, training)(dataset, resolve(dataset, "cizsl", **QUICK, **changes)[1], 0, CPU)
    return games[0]


@pytest.fixture
def logits():
    return torch.randn(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_divergence_equals_its_definition(logits):
    p, u, gamma, beta = logits.softmax(dim=1).numpy(), 1 / 9, 0.3, 0.7
    expected = ((p**gamma * u ** (1 - gamma)).sum(axis=1) ** ((1 - beta) / (1 - gamma)) - 1) / (beta - 1)
    np.testing.assert_allclose(sharma_mittal(logits, gamma, beta).numpy(), expected, rtol=1e-6)


def test_the_divergence_tends_to_that_of_kullback_and_leibler(logits):
    p = logits.softmax(dim=1).numpy()
    expected = (p * np.log(9 * p)).sum(axis=1)
    np.testing.assert_allclose(sharma_mittal(logits, 0.9999, 0.9998).numpy(), expected, rtol=1e-2)


def test_the_divergence_is_zero_for_the_uniform_distribution_alone(logits):
    assert float(sharma_mittal(torch.full((1, 9), 2.0), 0.4, 0.6)) == pytest.approx(0.0, abs=1e-6)
    assert float(sharma_mittal(logits, 0.4, 0.6).min()) > 0.01


def test_the_gradient_of_the_divergence_is_finite_for_a_certain_posterior():
    logits = torch.tensor([[300.0, 0.0, 0.0]], requires_grad=True)
    SharmaMittal()(logits).backward()
    assert bool(logits.grad.isfinite().all())


def test_the_parameters_of_the_divergence_are_learnt_and_stay_in_their_range(dataset):
    learnt = trained(dataset, creativity_weight=1.0).divergence.parameter.detach()
    assert float(learnt.abs().min()) > 0  # where they started
    divergence = SharmaMittal()
    with torch.no_grad():
        divergence.parameter.fill_(100.0)
    assert float(divergence(torch.tensor([[0.0, 50.0]])).detach()) == pytest.approx(
        (2**-0.2 - 1) / -0.2, rel=1e-4
    )  # both 0.8


def test_a_hallucinated_descriptor_lies_between_those_of_two_classes():
    draws = torch.Generator().manual_seed(0)
    descriptors = 3 * torch.nn.functional.normalize(torch.rand(50, 4, generator=draws), dim=1)
    mixed = hallucinate(descriptors, torch.Generator().manual_seed(1))
    torch.testing.assert_close(mixed.norm(dim=1), torch.full((50,), 3.0))
    others = descriptors[torch.randperm(50, generator=torch.Generator().manual_seed(1))]
    shares = torch.linalg.lstsq(torch.stack([descriptors, others], dim=2), mixed[:, :, None]).solution[:, :, 0]
    apart = (descriptors - others).norm(dim=1) > 0.1
    share = (shares[:, 0] / shares.sum(dim=1))[apart]
    assert int(apart.sum()) > 30
    assert float(share.min()) + 1e-3 >= 0.2
    assert float(share.max()) - 1e-3 <= 0.8


def test_posteriors_of_hallucinated_rows_have_higher_entropy_with_the_loss(dataset):
    entropies = {}
    for weight in (0.0, 10.0):
        training = trained(dataset, creativity_weight=weight)
        descriptors = hallucinate(training.rows.seen[torch.arange(400) % 12], torch.Generator().manual_seed(5))
        noise = torch.randn(descriptors.shape, generator=torch.Generator().manual_seed(6))
        with torch.no_grad():
            posterior = training.classifier(training.model.generate(noise, descriptors)).softmax(dim=1)
        entropies[weight] = float(torch.special.entr(posterior).sum(dim=1).mean())
    assert entropies[10.0] > entropies[0.0] + 0.3  # 2.4 and 1.8 here; log 12 = 2.5 is the most
