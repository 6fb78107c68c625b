"""CVC-ZSL: a generator of classifier weights from descriptors, trained on episodes of a few classes.

Li, Min, Fu: Rethinking Zero-Shot Learning: A Conditional Visual Classification Perspective, ICCV 2019.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import ExampleSpace, Fitted, TrainingRows
from classnorm.methods.parts.embedding import EmbedderModel, divergence_hint
from classnorm.methods.parts.episode import Episodes, classes_of, prototypes_of
from classnorm.methods.settings.cvc import METHOD, CVCConfig
from classnorm.nn import dot_logits
from classnorm.training import FitContext, train

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

    def example_space(self) -> ExampleSpace | None:
        return ExampleSpace(F.normalize) if self.kind == "cosine" else None  # by dot products, classifiers


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
