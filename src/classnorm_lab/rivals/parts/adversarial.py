"""The one adversarial training loop: a generator of features against a Wasserstein critic.

A method is a `GenerativeModel` and an `AdversarialTraining`, put together by `generative_fit`. What a method adds, it
overrides:

- `GenerativeModel.generate` makes features of noise and descriptors, in training and afterwards;
- `GenerativeModel.transform` is what the final classifier sees of a feature;

and of the training

- `generate` and `fake` are the same in training, where a method may need something else;
- `generators` and `critics` are the networks trained in the steps of the generator and of the critic;
- `generator_loss` and `critic_loss` are what they minimise; `train_round` is the order of the steps, `train_epoch` that
  of the rounds.
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
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fit, Fitted
from classnorm.methods.rows import TrainingRows
from classnorm.training import EpochLosses, FitContext, History, gradient_step, run_epochs, seeded
from classnorm_lab.rivals.parts.generator import AdversarialConfig, Critic, GenerativeModel, critic_loss

_WEIGHT_STD = 0.02
_BETAS = (0.5, 0.999)


@dataclass(frozen=True)
class ScaledRows:
    """The data of the training: scaled features and normalized descriptors."""

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


class AdversarialTraining:
    """The training of the generator against the critic."""

    hint = "lower `lr`"
    """The likely remedy for a training run that diverges."""

    def __init__(self, model: GenerativeModel, rows: ScaledRows, config: AdversarialConfig, seed: int) -> None:
        self.model, self.rows, self.config, self.seed = model, rows, config, seed
        self.critic = Critic(rows.seen.shape[1], rows.features.shape[1], config.hidden)
        self.generator_networks, self.critic_networks = nn.ModuleDict(self.generators()), nn.ModuleDict(self.critics())
        networks = {**self.generator_networks, **self.critic_networks}
        self.networks = nn.ModuleDict(networks).to(rows.features.device)  # trained, and stored in checkpoints
        self._initialize(seeded(seed, 0))  # stages 1, 2, … are the epochs, and the last one the generated features

    def generators(self) -> dict[str, nn.Module]:
        """Networks trained in generator steps."""
        return {"generator": self.model.generator}

    def critics(self) -> dict[str, nn.Module]:
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

    def run(self, context: FitContext) -> History:
        """Train for all epochs; the history records the critic's loss."""
        fused = self.rows.features.device.type in ("cpu", "cuda")
        # One optimizer for all: it skips parameters without a gradient.
        optimizer = torch.optim.Adam(self.parameter_groups(), self.config.lr, _BETAS, fused=fused)
        epoch = functools.partial(self.train_epoch, optimizer)
        return run_epochs(
            epoch, self.config.epochs, self.networks, optimizer, context, hint=self.hint, largest_rise=math.inf
        )

    def train_round(self, optimizer: torch.optim.Optimizer, batches: Iterable[Batch]) -> list[Tensor]:
        """A critic step on each batch, and a generator step on the last one; returns the critic's losses.

        A batch is drawn when it is asked for: its random numbers come after those of the step before.
        """
        losses = []
        for batch in batches:
            loss = self.critic_loss(batch)
            gradient_step(optimizer, loss)
            losses.append(loss.detach())
        self.critic_networks.requires_grad_(False)
        gradient_step(optimizer, self.generator_loss(batch))
        self.critic_networks.requires_grad_(True)
        return losses

    def train_epoch(self, optimizer: torch.optim.Optimizer, epoch: int) -> EpochLosses:
        """The critic's losses. Random draws depend only on seed and epoch, so that training can resume."""
        steps = self.config.critic_steps
        batches = self._batches(seeded(self.seed, epoch + 1))
        losses: list[Tensor] = []
        for _ in range(math.ceil(len(self.rows.labels) / self.config.batch_size)):
            losses += self.train_round(optimizer, itertools.islice(batches, steps))
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


def build(config: AdversarialConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> GenerativeModel:
    """A model to load weights into."""
    return GenerativeModel(config, d_a, d_z, len(weights["descriptors"]))


def generative_fit(model_class: Callable[..., GenerativeModel], training: Callable[..., AdversarialTraining]) -> Fit:
    """The `fit` that trains a generator on the training rows, then the classifier on real and generated rows."""

    def fit(dataset: ZeroShotDataset, config: AdversarialConfig, seed: int, context: FitContext) -> Fitted:
        rows = TrainingRows.of(dataset, context.device)
        model = model_class(config, dataset.d_a, dataset.d_z, dataset.n_classes).to(context.device)
        model.fit_scale(rows.features)
        model.attributes.fit(rows.descriptors)
        model.descriptors.copy_(torch.from_numpy(np.array(dataset.descriptors)))
        seen = torch.from_numpy(dataset.seen).to(context.device)
        descriptors = model.attributes(model.descriptors)
        scaled = ScaledRows(model.scale(rows.features), rows.labels, descriptors[seen], descriptors[~seen])
        history = training(model, scaled, config, seed).run(context)
        model.fit_classifier(scaled.features, rows.labels, seen, seed, seeded(seed, config.epochs + 1))
        return Fitted(model.eval(), history)

    return fit
