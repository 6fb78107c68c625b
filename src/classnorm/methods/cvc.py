"""CVC-ZSL: descriptors become the weights of a classifier, trained on episodes of a few classes each.

Li, Min, Fu: Rethinking Zero-Shot Learning: A Conditional Visual Classification Perspective, ICCV 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import Fitted, Method, MethodConfig, TrainingRows, ZeroShotModel
from classnorm.methods.parts.episode import classes_of, prototypes_of
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeEmbedder, AttributeNormalizationKind, dot_logits
from classnorm.training import FitContext, Schedule, TrainingConfig, seeded, train

__all__ = ["METHOD", "CVCConfig", "CVCModel", "Episodes"]


@dataclass(frozen=True, kw_only=True)
class CVCConfig(MethodConfig, TrainingConfig):
    """The publication's classifier generator and its episodes. The defaults are the `reference` recipe."""

    epochs: int = 40
    """Passes over the training rows, as many episodes as have their number; the model of the last one is the result."""
    batch_size: int = 128
    """Rows per episode: batch_size / ways of each of its classes."""
    ways: int = 32
    """Classes per episode; all seen classes where there are fewer."""
    lr: float = 5e-4
    """Learning rate."""
    schedule: Schedule = "cosine"
    """How the learning rate falls: not at all, once by `lr_drop`, again and again by it, or along a cosine to 0."""
    grad_clip: float = 1.0
    """Largest norm of the gradient of all weights; 0 does not clip."""
    hidden: int = 1600
    """Width of the hidden layer."""
    attribute_normalization: AttributeNormalizationKind = "unit"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""
    class_norm: bool = False
    """Class standardization before the last layer, and proper variance for that layer."""
    final_relu: bool = True
    """ReLU on the prototypes: right for non-negative features, wrong for features of either sign (recipes look)."""
    logits: Literal["cosine", "dot"] = "cosine"
    """`cosine` times a learnt scale, or the plain product `dot`."""
    scale: float = 10.0
    """Where the learnt scale of the cosine starts."""

    def check(self) -> None:
        MethodConfig.check(self)
        TrainingConfig.check(self)
        for name, low in (("hidden", 1), ("ways", 2)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least {low}")
        if self.batch_size < self.ways:
            raise ConfigError(
                f"batch_size is {self.batch_size}; it must be at least the {self.ways} ways, one row for each class"
            )
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ConfigError(f"scale is {self.scale}; it must be positive")


class CVCModel(ZeroShotModel):
    """The classifier generator and the scale of its cosines.

    The publication also learns a bias, one number added to all scores: it cancels in the softmax and in every
    prediction, so there is none here.
    """

    def __init__(self, config: CVCConfig, embedder: AttributeEmbedder) -> None:
        super().__init__()
        self.kind = config.logits
        self.embedder = embedder
        if self.kind == "cosine":
            self.scale = nn.Parameter(torch.tensor(float(config.scale)))

    def prototypes(self, descriptors: Tensor) -> Tensor:
        result: Tensor = self.embedder(descriptors)
        return result

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        if self.kind == "dot":
            return dot_logits(features, prototypes)
        return F.normalize(features, dim=1) @ (self.scale * F.normalize(prototypes, dim=1)).T


class Episodes:
    """Batches of `ways` classes with `shots` rows each, drawn anew for every episode.

    Neither a class comes twice in an episode nor, where the class has `shots` rows, a row. The episodes of an epoch
    depend on (seed, epoch) alone.
    """

    def __init__(self, labels: Tensor, ways: int, shots: int, seed: int) -> None:
        self.device = labels.device
        self.rows = labels.cpu().argsort(stable=True)  # rows of class 0, then of class 1, …
        self.count = labels.cpu().bincount()  # [n_classes]
        self.first = self.count.cumsum(0) - self.count
        self.ways, self.shots, self.seed = min(ways, len(self.count)), shots, seed

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / (self.ways * self.shots))

    def epoch(self, number: int) -> Iterator[Tensor]:
        generator = seeded(self.seed, number)
        classes = torch.rand(len(self), len(self.count), generator=generator).topk(self.ways, dim=1).indices
        count = self.count[classes]  # [episodes, ways]
        chosen = torch.empty(*classes.shape, self.shots, dtype=torch.int64)
        # Floyd's sample: shot i is drawn from the first `last + 1` rows of the class, and is row `last` itself if that
        # draw was taken already. A class with too few rows repeats some.
        for i in range(self.shots):
            last = torch.where(count < self.shots, count, count - self.shots + i + 1) - 1
            drawn = (torch.rand(classes.shape, generator=generator, dtype=torch.float64) * (last + 1)).long()
            taken = (chosen[..., :i] == drawn[..., None]).any(dim=2) & (count >= self.shots)
            chosen[..., i] = torch.where(taken, last, drawn)
        yield from self.rows[chosen + self.first[classes][..., None]].flatten(1).to(self.device)


def _model(config: CVCConfig, d_a: int, d_z: int, seed: int, descriptors: Tensor) -> CVCModel:
    embedder = AttributeEmbedder(
        d_a,
        d_z,
        layers=2,
        hidden=config.hidden,
        attribute_normalization=config.attribute_normalization,
        normalization="class" if config.class_norm else "none",
        final_relu=config.final_relu,
        init="proper",
        seed=seed,
        descriptors=descriptors,
    )
    generator = torch.Generator().manual_seed(seed + 1)
    layers = [module for module in embedder.modules() if isinstance(module, nn.Linear)]
    for layer in layers[:-1] if config.class_norm else layers:
        nn.init.normal_(layer.weight, std=0.02, generator=generator)
        nn.init.zeros_(layer.bias)
    return CVCModel(config, embedder)


def build(config: CVCConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> CVCModel:
    """A model to load weights into."""
    return _model(config, d_a, d_z, 0, torch.zeros(2, d_a))


def fit(dataset: ZeroShotDataset, config: CVCConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    config.check()
    rows = TrainingRows.of(dataset, context.device)
    model = _model(config, dataset.d_a, dataset.d_z, seed, rows.descriptors.cpu()).to(context.device)
    episodes = Episodes(rows.labels, config.ways, config.batch_size // config.ways, seed)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        classes, targets = classes_of(labels)
        prototypes = prototypes_of(model.embedder, rows.descriptors, classes)
        return F.cross_entropy(model.logits(features, prototypes), targets)

    dot = 'dot products are unbounded: use `logits="cosine"` or lower `lr`'
    history = train(
        model,
        loss,
        rows.features,
        rows.labels,
        config,
        seed=seed,
        batches=episodes,
        context=context,
        hint=dot if config.logits == "dot" else "lower `lr`",
    )
    return Fitted(model, history)


_PAPER_DECAY = {"AWA1": 1e-4, "AWA2": 1e-3, "CUB": 1e-3, "SUN": 1e-5}


def paper(dataset: ZeroShotDataset) -> CVCConfig:
    """The authors' schedule: a million episodes of 32 classes × 4 rows (AwA1: 16 × 4), the learning rate halved every
    200,000 (AwA1: 500,000). Other datasets as CUB."""
    benchmark = dataset.benchmark
    ways, drop_at = (16, 0.5) if benchmark == "AWA1" else (32, 0.2)
    rows_per_episode = 4 * min(ways, int(dataset.seen.sum()))
    return CVCConfig(
        epochs=max(1, round(1_000_000 / -(-len(dataset.split.train) // rows_per_episode))),
        batch_size=4 * ways,
        ways=ways,
        lr=1e-5,
        weight_decay=_PAPER_DECAY.get(benchmark or "", 1e-3),
        schedule="steps",
        lr_drop=0.5,
        lr_drop_at=drop_at,
        attribute_normalization="none",
        final_relu=dataset.nonnegative,
    )


def reference(dataset: ZeroShotDataset) -> CVCConfig:
    """A short schedule, its learning rate chosen by validation."""
    return CVCConfig(final_relu=dataset.nonnegative)


def class_norm(dataset: ZeroShotDataset) -> CVCConfig:
    """`reference` with class normalization."""
    return reference(dataset).replace(class_norm=True)


RECIPES: dict[str, Callable[[ZeroShotDataset], MethodConfig]] = {
    "paper": paper,
    "reference": reference,
    "class-norm": class_norm,
}
SPACE: Space = {
    "lr": Range(2e-4, 2e-3, log=True),
    "epochs": Range(15, 60, log=True, whole=True),
    "class_norm": Choice((False, True)),
    "weight_decay": Range(1e-6, 1e-3, log=True),
}
GRID: Space = {
    "lr": Choice((5e-4, 1e-3)),
    "epochs": Choice((20, 40)),
    "class_norm": Choice((False, True)),
}
METHOD = Method(config=CVCConfig, recipes=RECIPES, build=build, fit=fit, space=SPACE, grid=GRID)
