"""CVC-ZSL: a generator of classifier weights from descriptors, trained on episodes of a few classes.

Li, Min, Fu: Rethinking Zero-Shot Learning: A Conditional Visual Classification Perspective, ICCV 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.classnorm import divergence_hint
from classnorm.methods.method import Fitted, Method
from classnorm.methods.model import ExampleSpace
from classnorm.methods.rows import TrainingRows
from classnorm.methods.space import Choice, Range
from classnorm.nn import dot_logits
from classnorm.settings import Positive, at_least
from classnorm.training import FitContext, train
from classnorm_lab.rivals.parts.episodes import EmbedderModel, EpisodeConfig, Episodes, classes_of


@dataclass(frozen=True, kw_only=True)
class CVCConfig(EpisodeConfig):
    """Settings of CVC-ZSL. The defaults are the recipe `reference`."""

    epochs: int = 40
    """Epochs, each with as many episodes as it takes to draw the number of training rows; the final model is kept."""
    batch_size: int = 128
    """Rows per episode, batch_size / ways from each of its classes."""
    ways: Annotated[int, at_least(2)] = 32
    """Classes per episode, at most all seen classes."""
    grad_clip: float = 1.0
    hidden: int = 1600
    final_relu: bool = True
    """ReLU on the prototypes, for non-negative features; recipes set it to match the data."""
    logits: Literal["cosine", "dot"] = "cosine"
    """Logits: `cosine` times a learnt scale, or the `dot` product."""
    scale: Positive = 10.0
    """Initial scale of the cosine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < self.ways:
            raise ConfigError(
                f"batch_size is {self.batch_size}; it must be at least the {self.ways} ways, one row for each class"
            )


class CVCModel(EmbedderModel):
    """The classifier generator and the scale of its cosines.

    The publication also learns a bias added to all scores; it is omitted, as it cancels in every prediction.
    """

    def __init__(self, config: CVCConfig, d_a: int, d_z: int, seed: int = 0, descriptors: Tensor | None = None) -> None:
        final_relu, class_norm = config.final_relu, config.class_norm
        super().__init__(config, d_a, d_z, seed, descriptors, final_relu=final_relu, class_norm=class_norm)
        generator = torch.Generator().manual_seed(seed + 1)
        layers = [module for module in self.embedder.modules() if isinstance(module, nn.Linear)]
        for layer in layers[:-1] if class_norm else layers:
            nn.init.normal_(layer.weight, std=0.02, generator=generator)
            nn.init.zeros_(layer.bias)
        self.kind = config.logits
        if self.kind == "cosine":
            self.scale = nn.Parameter(torch.tensor(float(config.scale)))

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        if self.kind == "dot":
            return dot_logits(features, prototypes)
        return F.normalize(features, dim=1) @ (self.scale * F.normalize(prototypes, dim=1)).T

    def example_space(self) -> ExampleSpace | None:
        return ExampleSpace(F.normalize) if self.kind == "cosine" else None  # by dot products, classifiers


def build(config: CVCConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> CVCModel:
    """A model to load weights into."""
    return CVCModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: CVCConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    rows = TrainingRows.of(dataset, context.device)
    model = CVCModel(config, dataset.d_a, dataset.d_z, seed, rows.descriptors).to(context.device)
    episodes = Episodes(rows.labels, config.ways, config.batch_size // config.ways, seed)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        classes, targets = classes_of(labels)
        prototypes = model.embedder.prototypes_of(rows.descriptors, classes)
        return F.cross_entropy(model.logits(features, prototypes), targets)

    hint = divergence_hint(config.logits)
    history = train(
        model, loss, rows.features, rows.labels, config, seed=seed, context=context, batches=episodes, hint=hint
    )
    return Fitted(model, history)


_PAPER_DECAY = {"AWA1": 1e-4, "AWA2": 1e-3, "CUB": 1e-3, "SUN": 1e-5}


def paper(dataset: ZeroShotDataset) -> CVCConfig:
    """The authors' schedule: a million episodes of 32 classes × 4 rows (AwA1: 16 × 4), the learning rate halved every
    200,000 (AwA1: 500,000). Other datasets use the settings of CUB."""
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
    """A short schedule, with the learning rate selected by validation."""
    return CVCConfig(final_relu=dataset.nonnegative)


METHOD = Method(
    config=CVCConfig,
    recipes={
        "paper": paper,
        "reference": reference,
        "class-norm": lambda dataset: reference(dataset).replace(class_norm=True),
    },
    build=build,
    fit=fit,
    space={
        "lr": Range(2e-4, 2e-3, log=True),
        "epochs": Range(15, 60, log=True, whole=True),
        "class_norm": Choice((False, True)),
        "weight_decay": Range(1e-6, 1e-3, log=True),
    },
    grid={
        "lr": Choice((5e-4, 1e-3)),
        "epochs": Choice((20, 40)),
        "class_norm": Choice((False, True)),
    },
)
