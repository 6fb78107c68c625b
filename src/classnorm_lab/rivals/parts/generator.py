"""Networks of the rivals that generate features, their settings, and the model with the final classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.nn import AttributeNormalization
from classnorm.settings import NotNegative, Positive, Steps, Width
from classnorm_lab.rivals.parts.softmax_rows import SoftmaxRowsConfig, SoftmaxRowsModel

Output = Literal["linear", "relu", "sigmoid"]

SLOPE = 0.2  # of LeakyReLU
_BLOCK_ROWS = 1 << 14  # generated at a time, to bound memory


@dataclass(frozen=True, kw_only=True)
class AdversarialConfig(SoftmaxRowsConfig):
    """Settings of a generator trained against a Wasserstein critic."""

    epochs: Steps = 4
    """Passes of the generator over the training rows; the critic makes `critic_steps` times as many."""
    lr: Positive = 3e-4
    """Learning rate of generator and critic (Adam, β 0.5 and 0.999)."""
    hidden: Width = 1024
    """Hidden units of the generator and of the critic."""
    critic_steps: Steps = 5
    """Critic steps per generator step."""
    gradient_penalty: NotNegative = 10.0
    """Weight λ of the gradient penalty."""

    @property
    def output(self) -> Output:
        """The last activation of the generator; training features are scaled to [0, 1]."""
        return "sigmoid"


@dataclass(frozen=True, kw_only=True)
class GenerativeConfig(AdversarialConfig):
    """Settings of a generator whose features are not bounded above."""

    final_relu: bool = True
    """ReLU on generated features, for non-negative features; recipes set it to match the data."""

    @property
    def output(self) -> Output:
        return "relu" if self.final_relu else "linear"


class Generator(nn.Module):
    """Noise and descriptor → feature, with one hidden layer."""

    def __init__(self, d_a: int, d_z: int, hidden: int, output: Output, d_noise: int | None = None) -> None:
        super().__init__()
        self.d_noise = d_noise or d_a
        self.hidden = nn.Linear(self.d_noise + d_a, hidden)
        self.feature = nn.Linear(hidden, d_z)
        self.output = output

    def forward(self, noise: Tensor, descriptors: Tensor) -> Tensor:
        """[…, d_noise], […, d_a] → […, d_z]."""
        return self.features(self.units(noise, descriptors))

    def units(self, noise: Tensor, descriptors: Tensor) -> Tensor:
        """[…, d_noise], […, d_a] → […, hidden]."""
        return F.leaky_relu(self.hidden(torch.cat([noise, descriptors], dim=-1)), SLOPE, inplace=True)

    def features(self, units: Tensor) -> Tensor:
        """[…, hidden] → […, d_z]."""
        features: Tensor = self.feature(units)
        if self.output == "linear":
            return features
        return features.relu_() if self.output == "relu" else features.sigmoid_()


class Critic(nn.Module):
    """Feature and descriptor → score, with one hidden layer.

    The first layer on their concatenation is written as a sum: the descriptor part is shared by real and generated
    features, and the gradient penalty needs the feature part alone.
    """

    def __init__(self, d_a: int, d_z: int, hidden: int) -> None:
        super().__init__()
        self.feature = nn.Linear(d_z, hidden)
        self.descriptor = nn.Linear(d_a, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)

    def forward(self, features: Tensor, descriptors: Tensor) -> Tensor:
        """[b, d_z], [b, d_a] → [b]."""
        hidden = F.leaky_relu(self.feature(features) + self.descriptor(descriptors), SLOPE, inplace=True)
        scores: Tensor = self.score(hidden)
        return scores.squeeze(1)


class SemanticDecoder(nn.Module):
    """Feature → descriptor, with one hidden layer."""

    def __init__(self, d_a: int, d_z: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_z, hidden)
        self.descriptor = nn.Linear(hidden, d_a)

    def forward(self, features: Tensor) -> Tensor:
        """[…, d_z] → […, d_a]."""
        descriptors: Tensor = self.descriptor(self.units(features))
        return descriptors

    def units(self, features: Tensor) -> Tensor:
        """[…, d_z] → […, hidden]."""
        return F.leaky_relu(self.hidden(features), SLOPE, inplace=True)


def critic_loss(
    critic: Critic, real: Tensor, fake: Tensor, descriptors: Tensor, mix: Tensor, penalty_weight: float
) -> Tensor:
    """The critic's loss: mean score of generated minus that of real features, plus the gradient penalty.

    Args:
        real, fake: [b, d_z], of the same classes.
        descriptors: [b, d_a].
        mix: [b, 1] in [0, 1], the share of the real feature in the point of the gradient.
    """
    from_descriptors = critic.descriptor(descriptors)
    hidden_real, hidden_fake = critic.feature(torch.cat([real, fake])).chunk(2)
    hidden_real, hidden_fake = hidden_real + from_descriptors, hidden_fake + from_descriptors  # [b, hidden]
    return wasserstein_loss(hidden_real, hidden_fake, critic.feature.weight, critic.score.weight, mix, penalty_weight)


def wasserstein_loss(
    hidden_real: Tensor, hidden_fake: Tensor, weight: Tensor, score: Tensor, mix: Tensor, penalty_weight: float
) -> Tensor:
    """The loss of a critic with one hidden layer, of its hidden units before the nonlinearity.

    With hidden units h = W x + b and scores v·φ(h), the gradient with respect to x is Wᵀ(φ′(h) ⊙ v). As φ′ is piecewise
    constant, the penalty needs no double backward pass. As h is linear in x, the hidden units of a point between two
    inputs interpolate theirs.

    Args:
        hidden_real, hidden_fake: [b, hidden].
        weight: W [hidden, d], of the part of the input that the penalty is about.
        score: v [1, hidden].
        mix: [b, 1] in [0, 1], the share of the real input in the point of the gradient.
    """
    difference = F.leaky_relu(hidden_fake, SLOPE).mean(dim=0) - F.leaky_relu(hidden_real, SLOPE).mean(dim=0)
    with torch.no_grad():
        slope = torch.lerp(hidden_fake, hidden_real, mix).gt(0).to(score.dtype).mul_(1.0 - SLOPE).add_(SLOPE)
    gradient = (slope * score) @ weight  # [b, d]
    penalty = (gradient.norm(dim=1) - 1.0).square().mean()
    loss: Tensor = difference @ score.squeeze(0) + penalty_weight * penalty
    return loss


class GenerativeModel(SoftmaxRowsModel):
    """A generator of scaled features, and the final classifier."""

    config: AdversarialConfig
    low: Tensor  # [d_z]
    span: Tensor  # [d_z]

    def __init__(self, config: AdversarialConfig, d_a: int, d_z: int, n_known: int) -> None:
        super().__init__(config, d_a, d_z, n_known)
        self.attributes = AttributeNormalization(d_a, config.attribute_normalization)
        self.generator = Generator(d_a, d_z, config.hidden, config.output)
        self.register_buffer("low", torch.zeros(d_z))
        self.register_buffer("span", torch.ones(d_z))

    def generate(self, noise: Tensor, descriptors: Tensor) -> Tensor:
        """[…, d_noise], […, d_a], normalized → […, d_z], scaled."""
        features: Tensor = self.generator(noise, descriptors)
        return features

    def scale(self, features: Tensor) -> Tensor:
        """Scale each dimension so that the training features fill [0, 1]."""
        return (features - self.low) / self.span

    @torch.no_grad()
    def fit_scale(self, features: Tensor) -> None:
        """Compute the range of each dimension over the training rows; constant dimensions are only shifted."""
        self.low.copy_(features.amin(dim=0))
        span = features.amax(dim=0) - self.low
        self.span.copy_(torch.where(span > 0, span, 1.0))

    @torch.no_grad()
    def synthesize(self, descriptors: Tensor, n: int, draws: torch.Generator) -> Tensor:
        noise = torch.randn(n, self.generator.d_noise, generator=draws).to(descriptors.device)
        blocks = torch.split(self.attributes(descriptors), max(1, _BLOCK_ROWS // n))
        return torch.cat([self.generate(noise.expand(len(a), -1, -1), a[:, None].expand(-1, n, -1)) for a in blocks])
