"""E-PGN: prototypes generated from descriptors, trained in episodes that hold out some of the seen classes.

Yu, Ji, Han, Zhang: Episode-based Prototype Generating Network for Zero-Shot Learning, CVPR 2020. A generator G maps
descriptors a to prototypes in feature space, a network F features x to descriptors. Each episode holds out some classes
H; on rows of the others, in steps that alternate with those of a critic D of pairs, G and F minimise

    α (mean (G(a_y) − x)² + mean (F(x) − a_y)²) + CE(σ x·G(a_c)) + CE(σ F(x)·a_c) − β D(G(a_y), F(x))

and D minimises D(G(a_y), F(x)) − D(x, a_y) + λ (‖∇D‖ − 1)². Then rows of the held-out classes refine G by the
cross-entropy of −τ mean (G(a_c) − x)² over c ∈ H, as if these classes were unseen.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import DescriptorConfig, Fitted, Method, MethodConfig
from classnorm.methods.model import ExampleSpace, ZeroShotModel
from classnorm.methods.rows import TrainingRows
from classnorm.methods.space import Choice, Range
from classnorm.nn import AttributeNormalization, initialize_
from classnorm.settings import Count, NotNegative, Positive, Steps, Width, at_least, at_most
from classnorm.training import EpochLosses, FitContext, History, gradient_step, run_epochs, seeded
from classnorm_lab.rivals.parts.generator import Critic, wasserstein_loss
from classnorm_lab.rivals.parts.layers import negative_distances


@dataclass(frozen=True, kw_only=True)
class EPGNConfig(MethodConfig, DescriptorConfig):
    """Settings of E-PGN. The defaults are the recipe `reference`."""

    epochs: Steps = 8
    """Episodes; each holds out other classes."""
    steps: Steps = 50
    """Steps of an episode on the classes that are not held out."""
    refine_steps: Annotated[int, at_least(0), at_most(10**6)] = 10
    """Steps of an episode on the held-out classes; 0 trains without episodes, on all classes."""
    held_out: Count = 10
    """Classes held out in an episode, at most half of the seen ones."""
    batch_size: Count = 64
    """Rows per step on the classes that are not held out."""
    lr: Positive = 1e-3
    """Learning rate (Adam)."""
    refine_rate: Positive = 0.1
    """Learning rate on the held-out classes, as a share of `lr`."""
    refine_scale: Positive = 10.0
    """Factor of the mean squared distances in the softmax over the held-out classes."""
    hidden: Width = 512
    """Hidden units of the prototype generator and of its reverse."""
    critic_hidden: Width = 512
    """Hidden units of the critic."""
    final_relu: bool = True
    """ReLU on the prototypes, for non-negative features; recipes set it to match the data."""
    regression_weight: NotNegative = 10.0
    """Weight of the squared errors, relative to the cross-entropies."""
    classification_scale: Positive = 0.03
    """Factor of the inner products in the cross-entropies."""
    adversarial_weight: NotNegative = 0.03
    """Weight of the critic's score in the loss of the other networks; 0 trains without a critic."""
    gradient_penalty: NotNegative = 10.0
    """Weight λ of the critic's gradient penalty."""


class _Mapping(nn.Module):
    """[n, d_in] → [n, d_out], with one hidden layer of tanh."""

    def __init__(self, d_in: int, hidden: int, d_out: int, final_relu: bool, draws: torch.Generator) -> None:
        super().__init__()
        self.hidden = initialize_(nn.Linear(d_in, hidden), "torch", generator=draws)
        self.output = initialize_(nn.Linear(hidden, d_out), "torch", generator=draws)
        self.final_relu = final_relu

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.hidden(inputs).tanh())
        return outputs.relu() if self.final_relu else outputs


class PairCritic(Critic):
    """Scores pairs of a feature and a descriptor, either of which may be generated."""

    def __init__(self, d_a: int, d_z: int, hidden: int, draws: torch.Generator) -> None:
        super().__init__(d_a, d_z, hidden)
        for layer in (self.feature, self.descriptor, self.score):
            initialize_(layer, "torch", generator=draws)

    def loss(
        self, real: tuple[Tensor, Tensor], fake: tuple[Tensor, Tensor], mix: Tensor, penalty_weight: float
    ) -> Tensor:
        """Mean score of generated minus that of real pairs, plus the penalty of the gradient in both members.

        Args:
            real, fake: [b, d_z] and [b, d_a].
            mix: [b, 1] in [0, 1], the share of the real pair in the point of the gradient.
        """
        hidden_real, hidden_fake = (self.feature(x) + self.descriptor(a) for x, a in (real, fake))  # [b, hidden]
        weight = torch.cat([self.feature.weight, self.descriptor.weight], dim=1)  # [hidden, d_z + d_a]
        return wasserstein_loss(hidden_real, hidden_fake, weight, self.score.weight, mix, penalty_weight)


class EPGNModel(ZeroShotModel):
    """The prototype generator, with negative squared distances as logits."""

    scale: Tensor  # root mean square of the training features

    def __init__(self, config: EPGNConfig, d_a: int, d_z: int, seed: int = 0) -> None:
        super().__init__()
        self.attributes = AttributeNormalization(d_a, config.attribute_normalization)
        self.generator = _Mapping(d_a, config.hidden, d_z, config.final_relu, seeded(seed, 0))
        self.register_buffer("scale", torch.ones(()))

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_z], on the scale of `logits`."""
        prototypes: Tensor = self.generator(self.attributes(descriptors))
        return prototypes

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return negative_distances(features / self.scale, prototypes)

    def example_space(self) -> ExampleSpace:
        return ExampleSpace(lambda features: features / self.scale, directions=False)


def build(config: EPGNConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> EPGNModel:
    """A model to load weights into."""
    return EPGNModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: EPGNConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    rows = TrainingRows.of(dataset, context.device)
    model = EPGNModel(config, dataset.d_a, dataset.d_z, seed).to(context.device)
    model.attributes.fit(rows.descriptors)
    model.scale.copy_(rows.features.square().mean().sqrt().clamp(min=torch.finfo(torch.float32).tiny))
    return Fitted(model.eval(), EpisodicTraining(model, rows, config, seed).run(context))


class EpisodicTraining:
    """Episodes, one per epoch."""

    def __init__(self, model: EPGNModel, rows: TrainingRows[Tensor], config: EPGNConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        self.features, self.labels = rows.features / model.scale, rows.labels
        self.descriptors = model.attributes(rows.descriptors)  # [n_seen, d_a]
        d_z, (n_seen, d_a) = self.features.shape[1], self.descriptors.shape
        self.held_out = min(config.held_out, n_seen // 2) if config.refine_steps else 0
        draws = seeded(seed, 1)  # stages 2, 3, … are the episodes
        self.generator = model.generator
        self.reverse = _Mapping(d_z, config.hidden, d_a, False, draws)
        self.critic = PairCritic(d_a, d_z, config.critic_hidden, draws)
        networks = {"generator": self.generator, "reverse": self.reverse, "critic": self.critic}
        self.networks = nn.ModuleDict(networks).to(self.features.device)

    def run(self, context: FitContext) -> History:
        # One optimizer for all networks: it skips parameters without a gradient.
        episode = functools.partial(self._episode, optimizer := self._adam(self.networks, self.config.lr))
        return run_epochs(episode, self.config.epochs, self.networks, optimizer, context)

    def _adam(self, network: nn.Module, lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(network.parameters(), lr, fused=self.features.device.type in ("cpu", "cuda"))

    def _episode(self, optimizer: torch.optim.Optimizer, number: int) -> EpochLosses:
        """The losses of all steps, on either kind of classes. Random draws depend only on seed and episode."""
        draws = seeded(self.seed, number + 2)
        order = torch.randperm(len(self.descriptors), generator=draws).to(self.labels.device)
        held, rest = order[: self.held_out].sort().values, order[self.held_out :].sort().values
        is_held = torch.isin(self.labels, held)  # [n]
        known, novel = (~is_held).nonzero().squeeze(1), is_held.nonzero().squeeze(1)
        losses = [self._step(optimizer, known[batch], rest, draws) for batch in self._batches(len(known), draws)]
        return EpochLosses(torch.stack(losses + self._refine(novel, held)), self.config.lr)

    def _batches(self, n: int, draws: torch.Generator) -> Iterator[Tensor]:
        """`steps` batches of indices below n, from shuffled passes."""
        size = min(self.config.batch_size, n)
        passes = math.ceil(self.config.steps * size / n)
        order = torch.cat([torch.randperm(n, generator=draws) for _ in range(passes)])
        yield from order[: self.config.steps * size].view(-1, size).to(self.labels.device)

    def _step(self, optimizer: torch.optim.Optimizer, rows: Tensor, classes: Tensor, draws: torch.Generator) -> Tensor:
        """A step of the critic, then one of the others; returns their loss without the critic's part."""
        config = self.config
        features, targets = self.features[rows], torch.searchsorted(classes, self.labels[rows])
        descriptors = self.descriptors[classes]
        prototypes, inferred = self.generator(descriptors), self.reverse(features)
        own, own_descriptors = prototypes[targets], descriptors[targets]
        loss = config.regression_weight * (F.mse_loss(own, features) + F.mse_loss(inferred, own_descriptors))
        for products in (features @ prototypes.T, inferred @ descriptors.T):  # [b, n_classes]
            loss = loss + F.cross_entropy(config.classification_scale * products, targets)
        value = loss.detach()
        if config.adversarial_weight:
            mix = torch.rand(len(rows), 1, generator=draws).to(features.device)
            real, fake = (features, own_descriptors), (own.detach(), inferred.detach())
            gradient_step(optimizer, self.critic.loss(real, fake, mix, config.gradient_penalty))
            self.critic.requires_grad_(False)
            loss = loss - config.adversarial_weight * self.critic(own, inferred).mean()
        gradient_step(optimizer, loss)
        self.critic.requires_grad_(True)
        return value

    def _refine(self, rows: Tensor, classes: Tensor) -> list[Tensor]:
        """The losses of steps that tell the held-out classes apart by the distances to their prototypes."""
        config, losses = self.config, []
        features, targets = self.features[rows], torch.searchsorted(classes, self.labels[rows])
        # A new optimizer: the gradients of the other losses are larger by orders of magnitude.
        optimizer = self._adam(self.generator, config.refine_rate * config.lr)
        for _ in range(config.refine_steps):
            distances = negative_distances(features, self.generator(self.descriptors[classes])) / features.shape[1]
            loss = F.cross_entropy(config.refine_scale * distances, targets)
            gradient_step(optimizer, loss)
            losses.append(loss.detach())
        return losses


@dataclass(frozen=True)
class _Schedule:
    """A published run: episodes, their steps, the batch, steps on held-out classes, rate, width of the critic."""

    epochs: int
    steps: int
    batch_size: int
    refine_steps: int
    lr: float
    critic_hidden: int


_CUB = _Schedule(15, 100, 32, 10, 5e-5, 1600)
_PAPER = {"AWA1": _Schedule(30, 50, 100, 100, 5e-5, 1200), "AWA2": _Schedule(30, 50, 64, 30, 2e-4, 1800)}


def paper(dataset: ZeroShotDataset) -> EPGNConfig:
    """The networks and schedules of the authors' runs, without calibration."""
    return EPGNConfig(
        **dataclasses.asdict(_PAPER.get(dataset.benchmark or "", _CUB)),
        hidden=1800,
        refine_scale=1.0,
        regression_weight=1.0,
        classification_scale=1.0,
        adversarial_weight=1.0,
        attribute_normalization="none",
        final_relu=dataset.nonnegative,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> EPGNConfig:
    """Narrower networks, larger steps and smaller logits, selected by validation on CUB."""
    return EPGNConfig(final_relu=dataset.nonnegative)


METHOD = Method(
    config=EPGNConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(2e-4, 3e-3, log=True),
        "epochs": Range(4, 30, log=True, whole=True),
        "refine_steps": Choice((5, 10, 20)),
        "regression_weight": Range(1.0, 100.0, log=True),
        "classification_scale": Range(0.01, 0.3, log=True),
        "adversarial_weight": Range(0.003, 0.3, log=True),
    },
    grid={
        "lr": Choice((5e-4, 1e-3)),
        "regression_weight": Choice((3.0, 10.0, 30.0)),
        "classification_scale": Choice((0.03, 0.1)),
    },
)
