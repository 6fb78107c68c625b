"""ZSML: a feature generator that is meta-learned on tasks whose support and query have different classes.

Verma, Brahma, Rai: Meta-Learning for Generalized Zero-Shot Learning, AAAI 2020. Generator and classifier θ and critic φ
have the losses of f-CLSWGAN. For each task, steps on its support S adapt copies of both,

    φ′ ← φ′ − η ∇ L_D(S; θ′, φ′),    θ′ ← θ′ − η ∇ L_G(S; θ′, φ′)

and the losses on its query Q, of classes that S lacks, change the initial weights with the rates β: to first order,

    φ ← φ − β_D ∇_φ′ L_D(Q; θ′, φ′),    θ ← θ − β_G ∇_θ′ L_G(Q; θ′, φ′)

(here with Adam). A softmax classifier is then trained on real rows and on rows generated for unseen classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method
from classnorm.methods.space import Choice, Range
from classnorm.settings import Count, NotNegative, Positive
from classnorm.training import EpochLosses, seeded
from classnorm_lab.rivals.parts.adversarial import AdversarialTraining, Batch, ScaledRows, generative_fit
from classnorm_lab.rivals.parts.episodes import Episodes
from classnorm_lab.rivals.parts.generator import GenerativeConfig, GenerativeModel, Generator
from classnorm_lab.rivals.parts.softmax_rows import rate, train_softmax


@dataclass(frozen=True, kw_only=True)
class ZSMLConfig(GenerativeConfig):
    """Settings of ZSML. The recipe `reference` sets what differs from the defaults."""

    epochs: int = 6
    """Epochs of `tasks` tasks each, whatever the number of training rows."""
    tasks: Count = 50
    """Tasks of an epoch, with one step of the initial weights each."""
    ways: Count = 10
    """Classes in the support of a task, and as many others in its query."""
    shots: Count = 5
    """Support rows of a class."""
    queries: Count = 5
    """Query rows of a class."""
    inner_steps: Count = 2
    """Generator steps on the support of a task."""
    inner_lr: Positive = 1e-2
    """Learning rate of the steps on the support (plain gradient descent)."""
    critic_steps: int = 1
    """Critic steps before each generator step on the support."""
    lr: float = 1e-3
    """Learning rate of the initial weights of generator and classifier (Adam, β 0.5 and 0.999)."""
    critic_lr: Positive = 1e-3
    """Learning rate of the initial weights of the critic."""
    hidden: int = 512
    """Hidden units of the generator and of the critic."""
    noise: Count = 512
    """Dimensions of the generator's noise."""
    classification_weight: NotNegative = 3.0
    """Weight of the classification loss of real and generated features."""


_SPREAD_ROWS = 1024  # training rows for the standard deviation of logits


class ZSMLModel(GenerativeModel):
    """A generator with noise of any width, and the final classifier.

    Its logits are divided by their standard deviation over training rows: they grow with the number of its steps, and
    with them would the bias that calibrates them, so that those of validation splits would be too small. On validation
    splits this fits better than a `classifier_reach`.
    """

    spread: Tensor

    def __init__(self, config: ZSMLConfig, d_a: int, d_z: int, n_known: int) -> None:
        super().__init__(config, d_a, d_z, n_known)
        self.generator = Generator(d_a, d_z, config.hidden, config.output, config.noise)
        self.register_buffer("spread", torch.ones(()))

    def fit_classifier(self, features: Tensor, labels: Tensor, seen: Tensor, seed: int, draws: torch.Generator) -> None:
        super().fit_classifier(features, labels, seen, seed, draws)
        with torch.no_grad():
            some = features[:: math.ceil(len(features) / _SPREAD_ROWS)]
            self.spread.copy_(self.classifier(self.transform(some)).std())

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return super().logits(features, prototypes) / self.spread


class ZSMLTraining(AdversarialTraining):
    """Its steps are tasks; a classifier of the seen classes learns together with the generator."""

    config: ZSMLConfig
    hint = "lower `inner_lr` or `lr`"

    def __init__(self, model: GenerativeModel, rows: ScaledRows, config: ZSMLConfig, seed: int) -> None:
        super().__init__(model, rows, config, seed)
        train_softmax(self.classifier, rows.features, rows.labels, config, seed)
        shots = max(config.shots, config.queries)
        self.tasks = Episodes(rows.labels, 2 * config.ways, shots, seed, config.tasks)
        self.generator_parameters: list[Tensor] = list(self.generator_networks.parameters())
        self.critic_parameters: list[Tensor] = list(self.critic_networks.parameters())

    def generators(self) -> dict[str, nn.Module]:
        self.classifier = nn.Linear(self.rows.features.shape[1], len(self.rows.seen))
        return super().generators() | {"classifier": self.classifier}

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": self.generator_parameters}, {"params": self.critic_parameters, "lr": self.config.critic_lr}]

    def generator_loss(self, batch: Batch) -> Tensor:
        fake = self.fake(batch)
        logits, labels = self.classifier(torch.cat([fake, batch.real])), batch.labels.repeat(2)
        classification = F.cross_entropy(logits, labels)
        return self.adversarial_loss(fake, batch.descriptors) + self.config.classification_weight * classification

    def train_epoch(self, optimizer: torch.optim.Optimizer, epoch: int) -> EpochLosses:
        """The critic's losses on the queries. Random draws depend only on seed and epoch."""
        draws = seeded(self.seed, epoch + 1, 1)
        losses = [self.meta_step(optimizer, *self.task(rows, draws)) for rows in self.tasks.epoch(epoch + 1)]
        return EpochLosses(torch.stack(losses), self.config.lr)

    def task(self, rows: Tensor, draws: torch.Generator) -> tuple[Batch, Batch]:
        """Support and query, of different classes: rows [n_classes · shots], sorted by class, → two batches."""
        by_class = rows.view(self.tasks.ways, self.tasks.shots)
        half = self.tasks.ways // 2
        support, query = by_class[:half, : self.config.shots], by_class[half:, : self.config.queries]
        return self.batch(support.flatten(), draws), self.batch(query.flatten(), draws)

    def meta_step(self, optimizer: torch.optim.Optimizer, support: Batch, query: Batch) -> Tensor:
        """Apply the gradients on the query, at weights adapted to the support, to the weights before."""
        parameters = self.generator_parameters + self.critic_parameters
        initial = [parameter.detach().clone() for parameter in parameters]
        self.adapt(support)
        loss = self.critic_loss(query)
        gradients = _gradients(self.generator_loss(query), self.generator_parameters)
        gradients += _gradients(loss, self.critic_parameters)
        with torch.no_grad():
            torch._foreach_copy_(parameters, initial)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        return loss.detach()

    def adapt(self, support: Batch) -> None:
        """Gradient descent on the support, in place."""
        for _ in range(self.config.inner_steps):
            for _ in range(self.config.critic_steps):
                self._descend(self.critic_parameters, self.critic_loss(support))
            self._descend(self.generator_parameters, self.generator_loss(support))

    def _descend(self, parameters: list[Tensor], loss: Tensor) -> None:
        gradients = _gradients(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-self.config.inner_lr)


def _gradients(loss: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """The gradients of `parameters`; the bias of the critic's score has none and gets zero."""
    return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))


def build(config: ZSMLConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> ZSMLModel:
    """A model to load weights into."""
    return ZSMLModel(config, d_a, d_z, len(weights["descriptors"]))


fit = generative_fit(ZSMLModel, ZSMLTraining)


def paper(dataset: ZeroShotDataset) -> ZSMLConfig:
    """The published tasks, rates and noise, without calibration; epochs, widths and weights are our guesses."""
    return ZSMLConfig(
        epochs=100,
        tasks=100,
        queries=3,
        inner_steps=5,
        inner_lr=1e-3,
        critic_lr=1e-5,
        hidden=4096,
        attribute_normalization="unit-plain",
        final_relu=dataset.nonnegative,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> ZSMLConfig:
    """Narrow networks, larger tasks, fewer and larger inner steps and a fast critic, selected by validation on CUB."""
    return ZSMLConfig(
        epochs=20,
        shots=10,
        queries=10,
        final_relu=dataset.nonnegative,
        lr=rate(dataset, 2e-4),
        critic_lr=rate(dataset, 1e-3),
        inner_lr=rate(dataset, 1e-2),
    )


METHOD = Method(
    config=ZSMLConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(5e-5, 2e-3, log=True),
        "critic_lr": Range(1e-5, 3e-3, log=True),
        "inner_lr": Range(1e-4, 2e-2, log=True),
        "epochs": Range(5, 40, log=True, whole=True),
        "classification_weight": Range(0.3, 20.0, log=True),
        "synthesized": Range(50, 600, log=True, whole=True),
    },
    grid={
        "lr": Choice((1e-4, 2e-4, 5e-4)),
        "critic_lr": Choice((1e-4, 1e-3)),
        "classification_weight": Choice((1.0, 3.0, 10.0)),
    },
    sees_unseen=True,
)
