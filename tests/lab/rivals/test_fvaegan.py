"""f-VAEGAN: its loss by formula, an autoencoder that reconstructs unknown rows, and features that differ by noise."""

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Bernoulli, Normal, kl_divergence

from classnorm.methods import FitContext
from classnorm_lab.rivals.fvaegan import FVAEGANConfig, FVAEGANTraining, vae_loss
from classnorm_lab.rivals.parts.adversarial import Batch, ScaledRows
from classnorm_lab.rivals.parts.generator import GenerativeModel

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained():
    """A training on half of the rows, and the other half. Rows of a class differ by two factors that all share."""
    draws = torch.Generator().manual_seed(0)
    descriptors = F.normalize(torch.randn(12, 6, generator=draws)) * 6**0.5
    labels, factors = torch.randint(12, (1200,), generator=draws), torch.randn(1200, 2, generator=draws)
    of_class = 0.7 * descriptors[labels] @ torch.randn(6, 24, generator=draws)
    of_row = 1.5 * factors @ torch.randn(2, 24, generator=draws) + 0.3 * torch.randn(1200, 24, generator=draws)
    features = (of_class + of_row).sigmoid()
    settings = {"epochs": 40, "lr": 3e-3, "critic_steps": 2, "adversarial_weight": 10.0, "encoded_noise": False}
    config = FVAEGANConfig(hidden=64, batch_size=32, **settings)
    rows = ScaledRows(features[:600], labels[:600], descriptors, descriptors[:0])
    training = FVAEGANTraining(GenerativeModel(config, 6, 24, 12), rows, config, 0)
    training.run(FitContext(CPU))
    return training, Batch(features[600:], labels[600:], descriptors[labels[600:]], draws)


def squared_error(features, real):
    return float((features - real).square().sum(dim=1).mean())


def class_means(features, labels):
    return torch.stack([features[labels == c].mean(dim=0) for c in range(12)])


def test_the_loss_is_the_negative_evidence_lower_bound_of_bernoulli_features_and_normal_codes():
    draws = torch.Generator().manual_seed(0)
    real, probabilities = (0.01 + 0.98 * torch.rand(6, 7, generator=draws, dtype=torch.float64) for _ in range(2))
    mean, log_variance = (torch.randn(6, 5, generator=draws, dtype=torch.float64) for _ in range(2))
    reconstruction = -Bernoulli(probabilities, validate_args=False).log_prob(real).sum(dim=1)
    divergence = kl_divergence(Normal(mean, (0.5 * log_variance).exp()), Normal(0.0, 1.0)).sum(dim=1)
    expected = (reconstruction + divergence).mean()
    torch.testing.assert_close(vae_loss(real, probabilities, mean, log_variance), expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_rows_left_out_of_training_are_reconstructed_far_better_than_by_means(trained):
    training, rest = trained
    codes, _ = training.encoder(rest.real, rest.descriptors)
    error = squared_error(training.generate(codes, rest.descriptors), rest.real)
    assert error < 0.4 * squared_error(training.rows.features.mean(dim=0), rest.real)  # we see 0.18
    of_classes = class_means(training.rows.features, training.rows.labels)
    assert error < 0.6 * squared_error(of_classes[rest.labels], rest.real)  # 0.26; without codes it is at least 1


@torch.no_grad()
def test_generated_rows_of_a_class_differ_by_noise_about_as_much_as_real_ones(trained):
    training, rest = trained
    generated = training.generate(rest.noise(), rest.descriptors)
    within = squared_error(generated, class_means(generated, rest.labels)[rest.labels])
    real = squared_error(rest.real, class_means(rest.real, rest.labels)[rest.labels])
    assert 0.3 * real < within < 2 * real  # a generator that ignores noise: 0
    assert 0 <= float(generated.min()) <= float(generated.max()) <= 1
