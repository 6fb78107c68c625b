"""Class Normalization: an MLP from descriptors to prototypes, trained with cross-entropy over the seen classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted
from classnorm.methods.model import ExampleSpace, ProductModel
from classnorm.methods.rows import ClassSampler, TrainingRows, row_moments, transformed_rows
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.nn import (
    AttributeEmbedder,
    cosine_cross_entropy,
    dot_logits,
    entropy_regularizer,
    gamma_for_variance,
    with_hubness,
)
from classnorm.training import SINGLE_PROCESS, FitContext, Processes, StoredRows, seeded, stage, train


class ClassNormModel(ProductModel):
    """The embedder, the scale of its logits, and the geometry of the features, if any."""

    gamma: Tensor
    means: Tensor

    def __init__(
        self, config: ClassNormConfig, d_a: int, d_z: int, seed: int, descriptors: Tensor, n_seen: int
    ) -> None:
        super().__init__()
        self.kind = config.logits
        self.hubness = config.hubness
        self.geometry = config.build_geometry(d_z) if config.geometry else None
        if self.geometry is not None:
            d_z = self.geometry.projection.shape[1]
            self.register_buffer("means", torch.zeros(n_seen, d_z))  # of the seen classes, after the geometry
        self.embedder = AttributeEmbedder(
            d_a,
            d_z,
            layers=config.layers,
            hidden=config.hidden,
            attribute_normalization=config.attribute_normalization,
            normalization=config.normalization,
            standardize_before_relu=config.standardize_before_relu,
            final_relu=config.final_relu,
            output_bias=config.output_bias,
            init=config.init,
            hidden_init=config.hidden_init,
            attribute_correction=config.attribute_correction,
            init_distribution=config.init_distribution,
            seed=seed,
            descriptors=descriptors,
        )
        gamma = torch.tensor(gamma_for_variance(1.0, d_z) if config.gamma == "auto" else float(config.gamma))
        if config.learn_gamma:
            self.gamma = nn.Parameter(gamma)
        else:
            self.register_buffer("gamma", gamma)

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_z]; with a geometry [n_classes, k + 1], where the last column is the hubness penalty."""
        prototypes: Tensor = self.embedder(descriptors)
        return prototypes if self.geometry is None else with_hubness(prototypes, self.means, self.hubness)

    def row_vectors(self, features: Tensor) -> Tensor:
        if self.geometry is not None:
            return F.pad(self.geometry(features), (0, 1), value=1.0)  # the last column meets the hubness penalty
        return F.normalize(features, dim=1) if self.kind == "cosine" else features

    def class_vectors(self, prototypes: Tensor) -> Tensor:
        if self.geometry is not None:
            vectors, penalties = prototypes[:, :-1], prototypes[:, -1:]
            return self.gamma**2 * torch.cat([F.normalize(vectors, dim=1), penalties], dim=1)
        return self.gamma**2 * F.normalize(prototypes, dim=1) if self.kind == "cosine" else prototypes

    def example_space(self) -> ExampleSpace | None:
        if self.geometry is not None:
            return ExampleSpace(
                self.geometry,
                lambda prototypes: prototypes[:, :-1],
                lambda centers: with_hubness(centers, self.means, self.hubness),
            )
        return ExampleSpace(self.row_vectors) if self.kind == "cosine" else None  # by dot products, classifiers


def build(config: ClassNormConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> ClassNormModel:
    """A model to load weights into; its initial weights do not matter."""
    any_init = config.replace(init="torch", hidden_init="torch")
    return ClassNormModel(any_init, d_a, d_z, 0, torch.zeros(2, d_a), len(weights.get("means", ())))


@dataclass(frozen=True)
class TrainingProblem:
    """A model and its training data, for the training loop or a diagnosis."""

    model: ClassNormModel
    features: Tensor | StoredRows
    labels: Tensor
    descriptors: Tensor
    entropy_weight: float

    def prototypes(self, descriptors: Tensor | None = None) -> Tensor:
        """[n_classes, d] for these descriptors; by default those of the seen classes."""
        with stage("embedder"):
            prototypes: Tensor = self.model.embedder(self.descriptors if descriptors is None else descriptors)
            return prototypes

    def logits(self, features: Tensor, descriptors: Tensor | None = None) -> Tensor:
        """Training features [b, d] → [b, n_classes]."""
        prototypes = self.prototypes(descriptors)
        with stage("logits"):
            if self.model.kind == "dot":
                return dot_logits(features, prototypes)
            return features @ (self.model.gamma**2 * F.normalize(prototypes, dim=1)).T

    def loss(self, logits: Tensor, labels: Tensor, log_weights: Tensor | None = None) -> Tensor:
        """Args:
        log_weights: [n_classes], logarithm of the number of classes that each stands for; by default one.
        """
        with stage("logits"):
            logits = logits.float()  # also where products are in 16 bits
            value = F.cross_entropy(logits if log_weights is None else logits + log_weights, labels)
            if self.entropy_weight:
                value = value + self.entropy_weight * entropy_regularizer(logits, log_weights)
            return value

    def batch_loss(
        self,
        features: Tensor,
        labels: Tensor,
        descriptors: Tensor | None = None,
        log_weights: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, through the closed-form gradient where there is one."""
        model = self.model
        differs = log_weights is not None or torch.is_autocast_enabled(features.device.type)
        if model.kind == "dot" or self.entropy_weight or model.gamma.requires_grad or differs:
            return self.loss(self.logits(features, descriptors), labels, log_weights)
        prototypes = self.prototypes(descriptors)
        with stage("logits"):
            return cosine_cross_entropy(features, prototypes, labels, model.gamma**2)


class Augmentation:
    """A sample of the classes, virtual classes, descriptor noise; the draws of a step depend only on (seed, step)."""

    def __init__(self, problem: TrainingProblem, config: ClassNormConfig, seed: int) -> None:
        self.problem, self.seed = problem, seed
        self.virtual = config.virtual_classes
        self.noise = config.descriptor_noise * problem.descriptors.std(dim=0) if config.descriptor_noise else None
        self.sampler = ClassSampler.of(config.sampled_classes, len(problem.descriptors), seed)
        self.generator = torch.Generator()

    @property
    def is_needed(self) -> bool:
        return bool(self.virtual or self.noise is not None or self.sampler)

    def start(self, step: int) -> None:
        """Seed the draws of a step."""
        seeded(self.seed, step, generator=self.generator)
        if self.sampler:
            self.sampler.start(step)

    def __call__(self, features: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The batch with virtual rows, its labels, the descriptors of its classes, and their weights if sampled."""
        if self.sampler is None:
            return self._augmented(features, labels, self.problem.descriptors)
        classes, labels, log_weights = self.sampler(labels)
        features, labels, descriptors = self._augmented(features, labels, self.problem.descriptors[classes])
        return features, labels, descriptors, F.pad(log_weights, (0, len(descriptors) - len(classes)))

    def _augmented(self, features: Tensor, labels: Tensor, descriptors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The batch with virtual rows, its labels, and the descriptors of these and of virtual classes."""
        device, n = features.device, min(self.virtual, len(labels))
        if n:
            partner = torch.randperm(len(labels), generator=self.generator)[:n].to(device)
            share = torch.rand(n, 1, generator=self.generator).to(device)
            mixed = share * features[:n] + (1 - share) * features[partner]
            mixed_descriptors = share * descriptors[labels[:n]] + (1 - share) * descriptors[labels[partner]]
            if self.problem.model.kind == "cosine":
                mixed = F.normalize(mixed, dim=1)
            virtual = torch.arange(len(descriptors), len(descriptors) + n, device=device)
            features, labels = torch.cat([features, mixed]), torch.cat([labels, virtual])
            descriptors = torch.cat([descriptors, mixed_descriptors])
        if self.noise is not None:
            draws = torch.randn(descriptors.shape, generator=self.generator).to(device)
            descriptors = descriptors + self.noise * draws
        return features, labels, descriptors


def prepare(
    dataset: ZeroShotDataset,
    config: ClassNormConfig,
    seed: int,
    device: torch.device,
    processes: Processes = SINGLE_PROCESS,
) -> TrainingProblem:
    """The untrained model and its training data, from the seen classes only."""
    rows = TrainingRows.stored(dataset, device)
    n_seen, features = len(rows.descriptors), rows.features
    model = ClassNormModel(config, dataset.d_a, dataset.d_z, seed, rows.descriptors.cpu(), n_seen).to(device)
    # Map or normalize features in memory once instead of in every batch.
    if model.geometry is not None:
        moments = row_moments(dataset, rows, config.power, processes=processes)
        model.geometry.fit_moments(moments)
        model.means.copy_(model.geometry.place(moments.class_means.to(rows.descriptors)))
        features = transformed_rows(model.geometry, features)
    elif config.logits == "cosine":
        features = features.mapped(F.normalize) if isinstance(features, StoredRows) else F.normalize(features, dim=1)
    return TrainingProblem(model, features, rows.labels, rows.descriptors, config.entropy_weight)


def fit(dataset: ZeroShotDataset, config: ClassNormConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    problem = prepare(dataset, config, seed, context.device, context.processes)
    augmentation = Augmentation(problem, config, seed)
    augment = augmentation if augmentation.is_needed else None
    history = train(
        problem.model,
        problem.batch_loss,
        problem.features,
        problem.labels,
        config,
        seed=seed,
        context=context,
        on_step=augment.start if augment else None,
        augment=augment,
        hint=divergence_hint(config.logits),
        precision=config.precision,
    )
    return Fitted(problem.model, history)


def divergence_hint(logits: str) -> str:
    """The likely remedy for a training run that diverges."""
    return 'dot products are unbounded: use `logits="cosine"` or lower `lr`' if logits == "dot" else "lower `lr`"
