"""CVC-ZSL: a generator of classifier weights from descriptors, trained on episodes of a few classes.

Li, Min, Fu: Rethinking Zero-Shot Learning: A Conditional Visual Classification Perspective, ICCV 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted, TrainingRows
from classnorm.methods.parts.embedding import EmbedderModel, divergence_hint
from classnorm.methods.parts.episode import classes_of, prototypes_of
from classnorm.methods.settings.cvc import METHOD, CVCConfig
from classnorm.nn import dot_logits
from classnorm.training import FitContext, seeded, train

__all__ = ["METHOD", "CVCConfig", "CVCModel", "Episodes"]


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


class Episodes:
    """Batches of `ways` distinct classes with `shots` rows each.

    Rows are distinct if the class has at least `shots`. The episodes of an epoch depend only on (seed, epoch).
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
        # Floyd's sampling: shot i is drawn from the first `last + 1` rows of the class, and is row `last` if the draw
        # is already taken. A class with too few rows repeats some.
        for i in range(self.shots):
            last = torch.where(count < self.shots, count, count - self.shots + i + 1) - 1
            drawn = (torch.rand(classes.shape, generator=generator, dtype=torch.float64) * (last + 1)).long()
            taken = (chosen[..., :i] == drawn[..., None]).any(dim=2) & (count >= self.shots)
            chosen[..., i] = torch.where(taken, last, drawn)
        yield from self.rows[chosen + self.first[classes][..., None]].flatten(1).to(self.device)


def build(config: CVCConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> CVCModel:
    """A model to load weights into."""
    return CVCModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: CVCConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    config.check()
    rows = TrainingRows.of(dataset, context.device)
    model = CVCModel(config, dataset.d_a, dataset.d_z, seed, rows.descriptors).to(context.device)
    episodes = Episodes(rows.labels, config.ways, config.batch_size // config.ways, seed)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        classes, targets = classes_of(labels)
        prototypes = prototypes_of(model.embedder, rows.descriptors, classes)
        return F.cross_entropy(model.logits(features, prototypes), targets)

    hint = divergence_hint(config.logits)
    history = train(
        model, loss, rows.features, rows.labels, config, seed=seed, context=context, batches=episodes, hint=hint
    )
    return Fitted(model, history)
