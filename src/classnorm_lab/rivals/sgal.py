"""SGAL: a variational autoencoder with a prior for each class, trained on real rows and on those it generates.

Yu, Lee: Zero-shot Learning via Simultaneous Generating and Learning, NeurIPS 2019. The latent prior of a class is
N(m(a), I), where the network m maps its descriptor a to a mean. The loss of a row x of the class y is

    w ‖x − D(z)‖² + KL(q(z | x) ‖ N(m(a_y), I)),    z ~ q(z | x)

plus a margin: the squared shortfall of the L1 distance of any two prior means. Rows of unseen classes are missing data.
After a warm-up on real rows, each step generates some, D(z) with z ~ N(m(a), I) for unseen a, and trains on real and
generated rows together, like an EM algorithm. The class with the nearest prior mean to that of q(z | x) wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted, Method
from classnorm.methods.model import ZeroShotModel
from classnorm.methods.rows import TrainingRows
from classnorm.methods.space import Choice, Range
from classnorm.nn import AttributeEmbedder, AttributeNormalizationKind, initialize_
from classnorm.settings import Count, Depth, NotNegative, Share, between
from classnorm.training import FitContext, Schedule, seeded, train
from classnorm_lab.rivals.parts.episodes import EmbedderConfig, classes_of
from classnorm_lab.rivals.parts.layers import StepDropout, negative_distances


@dataclass(frozen=True, kw_only=True)
class SGALConfig(EmbedderConfig):
    """Settings of SGAL. The defaults are the recipe `reference`."""

    epochs: int = 10
    batch_size: int = 64
    lr: float = 3e-3
    weight_decay: float = 0.0
    schedule: Schedule = "cosine"
    attribute_normalization: AttributeNormalizationKind = "standardize"
    hidden: int = 1024
    """Hidden units of the network from descriptors to prior means."""
    layers: Depth = 2
    """Linear layers of that network."""
    encoder_hidden: Count = 512
    """Hidden units of the encoder."""
    dropout: Annotated[float, between(0, 0.99)] = 0.2
    """Share of the encoder's hidden units dropped in training."""
    latent: Count = 64
    """Dimensions of the latent space."""
    reconstruction_weight: NotNegative = 1.0
    """Weight of the squared error of reconstructed features."""
    margin: NotNegative = 2.0
    """Least L1 distance between the prior means of two classes, per latent dimension."""
    margin_weight: NotNegative = 0.3
    """Weight of the mean squared shortfall of that distance."""
    warmup: Share = 0.75
    """Share of training on real rows alone, before rows of unseen classes are generated; 1 generates none."""
    generated: NotNegative = 0.5
    """Generated rows per real row, after that."""
    final_relu: bool = True
    """ReLU on generated rows, for non-negative features; recipes set it to match the data."""


_SLOPE = 0.2  # of LeakyReLU
_STREAM = 3  # tells these draws from others of the same step


class SGALModel(ZeroShotModel):
    """The autoencoder, and the embedder from descriptors to prior means."""

    def __init__(
        self, config: SGALConfig, d_a: int, d_z: int, seed: int = 0, descriptors: Tensor | None = None
    ) -> None:
        super().__init__()
        self.prior = AttributeEmbedder(
            d_a,
            config.latent,
            layers=config.layers,
            hidden=config.hidden,
            attribute_normalization=config.attribute_normalization,
            final_relu=False,
            init="torch",
            seed=seed,
            descriptors=torch.zeros(2, d_a) if descriptors is None else descriptors.cpu(),
        )
        self.final_relu = config.final_relu
        self.encoder = nn.Linear(d_z, config.encoder_hidden)
        self.posterior = nn.Linear(config.encoder_hidden, 2 * config.latent)
        self.decoder = nn.Linear(config.latent, d_z)
        generator = torch.Generator().manual_seed(seed + 1)
        for layer in (self.encoder, self.posterior, self.decoder):
            initialize_(layer, "torch", generator=generator)

    def encode(self, features: Tensor, dropout: StepDropout | None = None) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of q(z | x): [n, d_z] → [n, latent] each."""
        hidden = F.leaky_relu(self.encoder(features), _SLOPE)
        mean, log_variance = self.posterior(dropout(hidden) if dropout else hidden).chunk(2, dim=1)
        return mean, log_variance

    @torch.no_grad()
    def generate(self, means: Tensor, draws: torch.Generator) -> Tensor:
        """Features of classes with these prior means: [n, latent] → [n, d_z]."""
        features: Tensor = self.decoder(means + normal_draws(means, draws))
        return F.relu(features) if self.final_relu else features

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, latent], the prior means."""
        means: Tensor = self.prior(descriptors)
        return means

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return negative_distances(self.encode(features)[0], prototypes)


def normal_draws(like: Tensor, draws: torch.Generator) -> Tensor:
    """Standard normal values of the same shape on the same device."""
    return torch.randn(like.shape, generator=draws).to(like.device)


def divergence(mean: Tensor, log_variance: Tensor, prior_mean: Tensor) -> Tensor:
    """KL divergence of N(mean, diag exp(log_variance)) from N(prior_mean, I): three [n, latent] → [n].

    >>> divergence(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([12.5000])
    """
    return 0.5 * (log_variance.exp() + (mean - prior_mean).square() - 1.0 - log_variance).sum(dim=1)


def shortfall(means: Tensor, least: float) -> Tensor:
    """Mean over pairs of [k, latent] of the squared shortfall of their L1 distance; 0 without a pair.

    >>> shortfall(torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 0.0]]), least=5.0)
    tensor(3.)
    """
    i, j = torch.triu_indices(len(means), len(means), offset=1, device=means.device)
    distances = (means[i] - means[j]).abs().sum(dim=1)
    return (least - distances).relu().square().sum() / max(1, len(distances))


class _Steps:
    """What training does in each step; the draws depend only on (seed, step)."""

    def __init__(
        self, model: SGALModel, rows: TrainingRows[Tensor], unseen: Tensor, config: SGALConfig, seed: int
    ) -> None:
        self.model, self.config, self.seed = model, config, seed
        self.seen, self.unseen = rows.descriptors, unseen  # [n_seen, d_a], [n_unseen, d_a]
        self.warmup_steps = config.warmup * config.epochs * math.ceil(len(rows.labels) / config.batch_size)
        self.generates = False
        self.dropout = StepDropout(config.dropout, seed)
        self.draws = torch.Generator()

    def start(self, step: int) -> None:
        """Seed the draws of a step."""
        self.dropout.start(step)
        seeded(self.seed, step, _STREAM, generator=self.draws)
        self.generates = step >= self.warmup_steps and len(self.unseen) > 0

    def augment(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows with generated ones, labels as indices into seen and then unseen classes, and the prior means."""
        if not self.generates:
            return features, labels, self.model.prototypes(self.seen)
        means = self.model.prototypes(torch.cat([self.seen, self.unseen]))
        n = round(self.config.generated * len(labels))
        classes = len(self.seen) + torch.randint(len(self.unseen), (n,), generator=self.draws).to(labels.device)
        generated = self.model.generate(means[classes], self.draws)
        return torch.cat([features, generated]), torch.cat([labels, classes]), means

    def loss(self, features: Tensor, labels: Tensor, means: Tensor) -> Tensor:
        """Mean loss of rows [b, d_z] with labels [b], for prior means [n_classes, latent]."""
        config = self.config
        mean, log_variance = self.model.encode(features, self.dropout)
        sample = mean + (0.5 * log_variance).exp() * normal_draws(mean, self.draws)
        errors = (self.model.decoder(sample) - features).square().sum(dim=1)
        bound = config.reconstruction_weight * errors + divergence(mean, log_variance, means[labels])
        present, _ = classes_of(labels)
        loss: Tensor = bound.mean() + config.margin_weight * shortfall(means[present], config.margin * config.latent)
        return loss


def build(config: SGALConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> SGALModel:
    """A model to load weights into."""
    return SGALModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: SGALConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows, and on rows generated from the descriptors of unseen classes."""
    rows = TrainingRows.of(dataset, context.device)
    model = SGALModel(config, dataset.d_a, dataset.d_z, seed, rows.descriptors).to(context.device)
    unseen = torch.from_numpy(dataset.descriptors[~dataset.seen]).to(context.device)
    steps = _Steps(model, rows, unseen, config, seed)
    history = train(
        model,
        steps.loss,
        rows.features,
        rows.labels,
        config,
        seed=seed,
        context=context,
        on_step=steps.start,
        augment=steps.augment,
    )
    return Fitted(model, history)


def paper(dataset: ZeroShotDataset) -> SGALConfig:
    """The authors' settings for AwA1, the only public ones, without calibration and selection of the best weights."""
    return SGALConfig(
        epochs=2000,
        lr=1e-4,
        schedule="constant",
        attribute_normalization="unit-plain",
        hidden=round((dataset.d_a * 64) ** 0.5),  # there the widths fall from d_a to the latent dimensions
        layers=6,
        dropout=0.5,
        margin_weight=6.4,  # 0.1, for a sum over the 64 rows of a batch
        warmup=0.5,
        generated=9.0,
        final_relu=False,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> SGALConfig:
    """A short schedule and a weaker margin, selected by validation on CUB."""
    return SGALConfig(final_relu=dataset.nonnegative)


METHOD = Method(
    config=SGALConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(1e-3, 1e-2, log=True),
        "epochs": Range(6, 20, log=True, whole=True),
        "dropout": Range(0.0, 0.6),
        "reconstruction_weight": Range(0.1, 3.0, log=True),
        "margin_weight": Range(0.1, 6.4, log=True),
        "warmup": Range(0.4, 1.0),
        "generated": Range(0.1, 2.0, log=True),
    },
    grid={
        "lr": Choice((1e-3, 3e-3)),
        "margin_weight": Choice((0.3, 1.0)),
        "warmup": Choice((0.5, 0.75)),
    },
    sees_unseen=True,
)
