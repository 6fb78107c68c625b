"""Features generated from descriptors: a generator, a Wasserstein critic, and the game that trains them.

A method is a `GenerativeModel` and a `Game`, put together by `generative_fit`. What a method adds, it overrides:

- `GenerativeModel.generate` makes features of noise and descriptors, in training and afterwards;
- `GenerativeModel.transform` is what the final classifier sees of a feature;
- `Game.generate` and `Game.fake` are the same in training, where a method may need something else;
- `Game.makers` and `Game.judges` are the networks trained in the steps of the generator and of the critic;
- `Game.generator_loss` and `Game.critic_loss` are what they minimise; `Game.play_round` is the order of the steps,
  `Game.play_epoch` that of the rounds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fit, Fitted
from classnorm.methods.rows import TrainingRows
from classnorm.nn import AttributeNormalization
from classnorm.training import EpochLosses, FitContext, History, gradient_step, run_epochs, seeded
from classnorm_lab.rivals.parts.generative import GameConfig, Output
from classnorm_lab.rivals.parts.softmax_rows import SoftmaxRowsModel

SLOPE = 0.2  # of LeakyReLU
_WEIGHT_STD = 0.02
_BETAS = (0.5, 0.999)
_BLOCK_ROWS = 1 << 14  # generated at a time, to bound memory


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

    config: GameConfig
    low: Tensor  # [d_z]
    span: Tensor  # [d_z]

    def __init__(self, config: GameConfig, d_a: int, d_z: int, n_known: int) -> None:
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


@dataclass(frozen=True)
class GameRows:
    """What a game is about: scaled features and normalized descriptors."""

    features: Tensor
    """[n, d_z]"""
    labels: Tensor
    """[n], indices into the seen classes"""
    seen: Tensor
    """[n_seen, d_a]"""
    unseen: Tensor
    """[n_unseen, d_a]"""


@dataclass(frozen=True)
class Batch:
    """The rows of a step, and the source of its random numbers."""

    real: Tensor
    """[b, d_z]"""
    labels: Tensor
    """[b], indices into the seen classes"""
    descriptors: Tensor
    """[b, d_a]"""
    draws: torch.Generator

    def noise(self, width: int | None = None) -> Tensor:
        """[b, width], from N(0, 1); as wide as the descriptors by default."""
        shape = (len(self.real), width or self.descriptors.shape[1])
        return torch.randn(shape, generator=self.draws).to(self.real.device)

    def mix(self) -> Tensor:
        """[b, 1], uniform in [0, 1]."""
        return torch.rand(len(self.real), 1, generator=self.draws).to(self.real.device)


class Game:
    """The training of the generator against the critic."""

    hint = "lower `lr`"
    """The likely remedy for a training run that diverges."""

    def __init__(self, model: GenerativeModel, rows: GameRows, config: GameConfig, seed: int) -> None:
        self.model, self.rows, self.config, self.seed = model, rows, config, seed
        self.critic = Critic(rows.seen.shape[1], rows.features.shape[1], config.hidden)
        self.maker_networks, self.judge_networks = nn.ModuleDict(self.makers()), nn.ModuleDict(self.judges())
        networks = {**self.maker_networks, **self.judge_networks}
        self.networks = nn.ModuleDict(networks).to(rows.features.device)  # trained, and stored in checkpoints
        self._initialize(seeded(seed, 0))  # stages 1, 2, … are the epochs, and the last one the generated features

    def makers(self) -> dict[str, nn.Module]:
        """Networks trained in generator steps."""
        return {"generator": self.model.generator}

    def judges(self) -> dict[str, nn.Module]:
        """Networks trained in critic steps, and fixed in generator steps."""
        return {"critic": self.critic}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimizer trains; a group may have a learning rate of its own."""
        return [{"params": list(self.networks.parameters())}]

    def generate(self, noise: Tensor, descriptors: Tensor) -> Tensor:
        """[b, d_noise], [b, d_a] → [b, d_z]."""
        return self.model.generate(noise, descriptors)

    def fake(self, batch: Batch) -> Tensor:
        """[b, d_z], features generated for the classes of a batch."""
        return self.generate(batch.noise(self.model.generator.d_noise), batch.descriptors)

    def generator_loss(self, batch: Batch) -> Tensor:
        """The loss of a generator step."""
        return self.generated_loss(self.fake(batch), batch)

    def generated_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        """The loss of features [b, d_z] generated for a batch."""
        return self.adversarial_loss(fake, batch.descriptors)

    def adversarial_loss(self, fake: Tensor, descriptors: Tensor) -> Tensor:
        """How unreal the critic finds generated features."""
        loss: Tensor = -self.critic(fake, descriptors).mean()
        return loss

    def critic_loss(self, batch: Batch) -> Tensor:
        """The loss of a critic step."""
        with torch.no_grad():
            fake = self.fake(batch)
        penalty = self.config.gradient_penalty
        return critic_loss(self.critic, batch.real, fake, batch.descriptors, batch.mix(), penalty)

    def generated_means(self, descriptors: Tensor, n: int, batch: Batch) -> tuple[Tensor, Tensor]:
        """Some of the classes [n_classes, d_a], drawn at random [k], and means of n features made for each [k, d_z].

        The features are about as many as the batch has rows.
        """
        k = max(1, len(batch.labels) // n)
        classes = torch.randperm(len(descriptors), generator=batch.draws)[:k].to(descriptors.device)
        chosen = descriptors[classes][:, None].expand(-1, n, -1)  # [k, n, d_a]
        noise = torch.randn(chosen.shape, generator=batch.draws).to(descriptors.device)
        return classes, self.generate(noise, chosen).mean(dim=1)

    def play(self, context: FitContext) -> History:
        """Train for all epochs; the history records the critic's loss."""
        fused = self.rows.features.device.type in ("cpu", "cuda")
        # One optimizer for all: it skips parameters without a gradient.
        optimizer = torch.optim.Adam(self.parameter_groups(), self.config.lr, _BETAS, fused=fused)
        epoch = functools.partial(self.play_epoch, optimizer)
        return run_epochs(
            epoch, self.config.epochs, self.networks, optimizer, context, hint=self.hint, largest_rise=math.inf
        )

    def play_round(self, optimizer: torch.optim.Optimizer, batches: Iterable[Batch]) -> list[Tensor]:
        """A critic step on each batch, and a generator step on the last one; returns the critic's losses.

        A batch is drawn when it is asked for: its random numbers come after those of the step before.
        """
        losses = []
        for batch in batches:
            loss = self.critic_loss(batch)
            gradient_step(optimizer, loss)
            losses.append(loss.detach())
        self.judge_networks.requires_grad_(False)
        gradient_step(optimizer, self.generator_loss(batch))
        self.judge_networks.requires_grad_(True)
        return losses

    def play_epoch(self, optimizer: torch.optim.Optimizer, epoch: int) -> EpochLosses:
        """The critic's losses. Random draws depend only on seed and epoch, so that training can resume."""
        steps = self.config.critic_steps
        batches = self._batches(seeded(self.seed, epoch + 1))
        losses: list[Tensor] = []
        for _ in range(math.ceil(len(self.rows.labels) / self.config.batch_size)):
            losses += self.play_round(optimizer, itertools.islice(batches, steps))
        return EpochLosses(torch.stack(losses), self.config.lr)

    def _batches(self, draws: torch.Generator) -> Iterator[Batch]:
        """`critic_steps` shuffled passes over the rows."""
        labels = self.rows.labels
        for _ in range(self.config.critic_steps):
            order = torch.randperm(len(labels), generator=draws).to(labels.device)
            for rows in torch.split(order, self.config.batch_size):
                yield self.batch(rows, draws)

    def batch(self, rows: Tensor, draws: torch.Generator) -> Batch:
        """The batch of the rows with these indices."""
        labels = self.rows.labels.index_select(0, rows)
        return Batch(self.rows.features.index_select(0, rows), labels, self.rows.seen.index_select(0, labels), draws)

    @torch.no_grad()
    def _initialize(self, draws: torch.Generator) -> None:
        """Draw weights from N(0, 0.02²) and set biases to zero."""
        for parameter in self.networks.parameters():
            if parameter.ndim == 1:
                parameter.zero_()
            else:
                parameter.copy_(_WEIGHT_STD * torch.randn(parameter.shape, generator=draws))


def build(config: GameConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> GenerativeModel:
    """A model to load weights into."""
    return GenerativeModel(config, d_a, d_z, len(weights["descriptors"]))


def generative_fit(model_class: Callable[..., GenerativeModel], game_class: Callable[..., Game]) -> Fit:
    """The `fit` that trains a generator on the training rows, then the classifier on real and generated rows."""

    def fit(dataset: ZeroShotDataset, config: GameConfig, seed: int, context: FitContext) -> Fitted:
        rows = TrainingRows.of(dataset, context.device)
        model = model_class(config, dataset.d_a, dataset.d_z, dataset.n_classes).to(context.device)
        model.fit_scale(rows.features)
        model.attributes.fit(rows.descriptors)
        model.descriptors.copy_(torch.from_numpy(np.array(dataset.descriptors)))
        seen = torch.from_numpy(dataset.seen).to(context.device)
        descriptors = model.attributes(model.descriptors)
        game_rows = GameRows(model.scale(rows.features), rows.labels, descriptors[seen], descriptors[~seen])
        history = game_class(model, game_rows, config, seed).play(context)
        model.fit_classifier(game_rows.features, rows.labels, seen, seed, seeded(seed, config.epochs + 1))
        return Fitted(model.eval(), history)

    return fit
