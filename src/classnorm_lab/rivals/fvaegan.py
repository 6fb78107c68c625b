"""f-VAEGAN: features from the decoder of a variational autoencoder that is trained against a Wasserstein critic too.

Xian, Sharma, Schiele, Akata: f-VAEGAN-D2: A Feature Generating Framework for Any-Shot Learning, CVPR 2019, in its
inductive form: the second discriminator (D2), which is for unlabelled images of unseen classes, is left out. An encoder
E(x, a) gives a normal distribution q of codes; the generator G is also the decoder of these codes. With a critic D,

    min_{G,E} max_D  E_q[BCE(x, G(z, a))] + KL(q(z | x, a) ‖ N(0, 1)) + γ L_WGAN,
    L_WGAN = E[D(x, a)] − E[D(x̃, a)] − λ E[(‖∇_x̂ D(x̂, a)‖ − 1)²]

where x̃ is generated from noise or from a code, and features are scaled to [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method
from classnorm.methods.space import Choice, Range
from classnorm.settings import NotNegative
from classnorm_lab.rivals.parts.adversarial import AdversarialTraining, Batch, build, generative_fit
from classnorm_lab.rivals.parts.generator import SLOPE, AdversarialConfig, GenerativeModel
from classnorm_lab.rivals.parts.softmax_rows import REACH, rate


@dataclass(frozen=True, kw_only=True)
class FVAEGANConfig(AdversarialConfig):
    """Settings of f-VAEGAN. The recipe `reference` sets what differs from the defaults."""

    batch_size: int = 128
    classifier_epochs: int = 12
    epochs: int = 11
    lr: float = 1e-3
    """Learning rate of generator, encoder and critic (Adam, β 0.5 and 0.999)."""
    hidden: int = 512
    """Hidden units of the generator, the encoder and the critic."""
    critic_steps: int = 1
    adversarial_weight: NotNegative = 1.0
    """Weight γ of the critic's score, beside the loss of the autoencoder."""
    encoded_noise: bool = True
    """Show the critic features generated from codes of real features, as later public code does, not from noise."""


_LOGIT_EPS = 1e-6


class Encoder(nn.Module):
    """Feature and descriptor → mean and log variance of the code, with two hidden layers."""

    def __init__(self, d_a: int, d_z: int, hidden: int) -> None:
        super().__init__()
        self.wide = nn.Linear(d_z + d_a, hidden)
        self.narrow = nn.Linear(hidden, 2 * d_a)
        self.code = nn.Linear(2 * d_a, 2 * d_a)

    def forward(self, features: Tensor, descriptors: Tensor) -> tuple[Tensor, Tensor]:
        """[b, d_z], [b, d_a] → [b, d_a], [b, d_a]."""
        hidden = F.leaky_relu(self.wide(torch.cat([features, descriptors], dim=1)), SLOPE, inplace=True)
        hidden = F.leaky_relu(self.narrow(hidden), SLOPE, inplace=True)
        mean, log_variance = self.code(hidden).chunk(2, dim=1)
        return mean, log_variance


def vae_loss(real: Tensor, reconstructed: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Binary cross-entropy of the features plus KL divergence of the codes from N(0, 1), per row.

    Args:
        real, reconstructed: [b, d_z] in [0, 1].
        mean, log_variance: [b, d_a].
    """
    # By logits: unlike the loss of probabilities, it lets a NaN through to the check for divergence.
    logits = reconstructed.logit(_LOGIT_EPS)
    reconstruction = F.binary_cross_entropy_with_logits(logits, real, reduction="sum")
    divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1.0).sum()
    return (reconstruction + divergence) / len(real)


class FVAEGANTraining(AdversarialTraining):
    """Adversarial training in which the generator also decodes the codes of real features."""

    config: FVAEGANConfig
    encoder: Encoder

    def generators(self) -> dict[str, nn.Module]:
        self.encoder = Encoder(self.rows.seen.shape[1], self.rows.features.shape[1], self.config.hidden)
        return {**super().generators(), "encoder": self.encoder}

    def reconstruct(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Features [b, d_z] decoded from drawn codes, and mean and log variance [b, d_a] of the codes."""
        mean, log_variance = self.encoder(batch.real, batch.descriptors)
        codes = mean + batch.noise() * (0.5 * log_variance).exp()
        return self.generate(codes, batch.descriptors), mean, log_variance

    def fake(self, batch: Batch) -> Tensor:
        return self.reconstruct(batch)[0] if self.config.encoded_noise else super().fake(batch)

    def generator_loss(self, batch: Batch) -> Tensor:
        reconstructed, mean, log_variance = self.reconstruct(batch)
        fake = reconstructed if self.config.encoded_noise else self.fake(batch)
        return vae_loss(batch.real, reconstructed, mean, log_variance) + self.generated_loss(fake, batch)

    def adversarial_loss(self, fake: Tensor, descriptors: Tensor) -> Tensor:
        return self.config.adversarial_weight * super().adversarial_loss(fake, descriptors)


fit = generative_fit(GenerativeModel, FVAEGANTraining)


def paper(dataset: ZeroShotDataset) -> FVAEGANConfig:
    """The published networks and weights, without calibration; the schedule is that of TF-VAEGAN on CUB."""
    return FVAEGANConfig(
        batch_size=64,
        classifier_epochs=25,
        epochs=300,
        lr=1e-4,
        hidden=4096,
        critic_steps=5,
        adversarial_weight=10.0,
        encoded_noise=False,
        attribute_normalization="unit-plain",
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> FVAEGANConfig:
    """Narrow networks, large steps and a weaker critic, selected by validation on CUB."""
    return FVAEGANConfig(lr=rate(dataset, 1e-3), classifier_reach=REACH)


METHOD = Method(
    config=FVAEGANConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(5e-5, 2e-3, log=True),
        "epochs": Range(4, 30, log=True, whole=True),
        "hidden": Choice((512, 1024, 2048)),
        "batch_size": Choice((64, 128, 256)),
        "critic_steps": Choice((1, 2, 5)),
        "adversarial_weight": Range(0.1, 30.0, log=True),
        "encoded_noise": Choice((False, True)),
        "synthesized": Range(50, 600, log=True, whole=True),
    },
    grid={
        "lr": Choice((3e-4, 1e-3)),
        "adversarial_weight": Choice((1.0, 3.0, 10.0)),
        "synthesized": Choice((100, 300)),
    },
    sees_unseen=True,
)
