"""TF-VAEGAN: f-VAEGAN with a semantic decoder that feeds back into the generator and into the final classifier.

Narayan, Gupta, Khan, Snoek, Shao: Latent Embedding Feedback and Discriminative Features for Zero-Shot Classification,
ECCV 2020, in its inductive form. A decoder Dec maps features to descriptors, with the hidden layer h(x). The loss of
f-VAEGAN gets the term

    β (E‖Dec(x) − a‖₁ + E‖Dec(x̃) − a‖₁).

A module F maps h of a generated feature to the hidden layer g of the generator: with g = G₁(z, a) and x̃ = G₂(g), the
second pass makes G₂(g + δ F(h(x̃))). The final classifier sees features joined with h(x) and Dec(x).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method
from classnorm.methods.space import Choice, Range
from classnorm.settings import NotNegative, Positive
from classnorm_lab.rivals.fvaegan import FVAEGANConfig, FVAEGANTraining
from classnorm_lab.rivals.parts.adversarial import Batch, ScaledRows, generative_fit
from classnorm_lab.rivals.parts.generator import SLOPE, GenerativeModel, SemanticDecoder
from classnorm_lab.rivals.parts.softmax_rows import REACH, rate


@dataclass(frozen=True, kw_only=True)
class TFVAEGANConfig(FVAEGANConfig):
    """Settings of TF-VAEGAN. The recipe `reference` sets what differs from the defaults."""

    epochs: int = 5
    """Passes of the generator over the training rows, each without feedback and with it."""
    adversarial_weight: float = 3.0
    semantic_weight: NotNegative = 1.0
    """Weight β of the reconstruction of descriptors from features."""
    feedback_weight: NotNegative = 1.0
    """Weight δ of the feedback in the hidden layer of the generator; 0 turns it off."""
    decoder_lr: Positive = 1e-3
    """Learning rate of the semantic decoder."""
    feedback_lr: Positive = 1e-4
    """Learning rate of the feedback module."""


_PUBLISHED_WIDTH = 4096


class Feedback(nn.Module):
    """Hidden layer of the decoder → change of the hidden layer of the generator."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(hidden, hidden)
        self.second = nn.Linear(hidden, hidden)

    def forward(self, units: Tensor) -> Tensor:
        """[…, hidden] → […, hidden]."""
        inner = F.leaky_relu(self.first(units), SLOPE, inplace=True)
        return F.leaky_relu(self.second(inner), SLOPE, inplace=True)


class TFVAEGANModel(GenerativeModel):
    """Generator, semantic decoder, feedback, and the final softmax classifier."""

    config: TFVAEGANConfig

    def __init__(self, config: TFVAEGANConfig, d_a: int, d_z: int, n_known: int) -> None:
        super().__init__(config, d_a, d_z, n_known)
        self.classifier = nn.Linear(d_z + config.hidden + d_a, n_known)
        self.decoder = SemanticDecoder(d_a, d_z, config.hidden)
        self.feedback = Feedback(config.hidden)

    def generate(self, noise: Tensor, descriptors: Tensor, feedback: bool = True) -> Tensor:
        units = self.generator.units(noise, descriptors)
        features = self.generator.features(units)
        if not (feedback and self.config.feedback_weight):
            return features
        change: Tensor = self.feedback(self.decoder.units(features).detach())
        return self.generator.features(units + self.config.feedback_weight * change)

    def transform(self, features: Tensor) -> Tensor:
        units = self.decoder.units(features)
        return torch.cat([features, units, F.normalize(self.decoder.descriptor(units), dim=-1)], dim=-1)


class TFVAEGANTraining(FVAEGANTraining):
    """The training of f-VAEGAN with a semantic decoder, each round without feedback and with it."""

    config: TFVAEGANConfig
    model: TFVAEGANModel
    feedback = False

    def __init__(self, model: TFVAEGANModel, rows: ScaledRows, config: TFVAEGANConfig, seed: int) -> None:
        super().__init__(model, rows, config, seed)
        with torch.no_grad():  # as much feedback at first as with networks of the published width
            for layer in (model.feedback.first, model.feedback.second):
                layer.weight *= math.sqrt(_PUBLISHED_WIDTH / config.hidden)

    def generators(self) -> dict[str, nn.Module]:
        return {**super().generators(), "decoder": self.model.decoder, "feedback": self.model.feedback}

    def generate(self, noise: Tensor, descriptors: Tensor) -> Tensor:
        return self.model.generate(noise, descriptors, self.feedback)

    def semantic_loss(self, features: Tensor, descriptors: Tensor) -> Tensor:
        """L1 distance of reconstructed descriptors, both of unit length."""
        difference = F.normalize(self.model.decoder(features)) - F.normalize(descriptors)
        return difference.abs().sum(dim=1).mean()

    def critic_loss(self, batch: Batch) -> Tensor:
        semantic = self.semantic_loss(batch.real, batch.descriptors)
        return super().critic_loss(batch) + self.config.semantic_weight * semantic

    def generated_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        semantic = self.semantic_loss(fake, batch.descriptors)
        return super().generated_loss(fake, batch) + self.config.semantic_weight * semantic

    def train_round(self, optimizer: torch.optim.Optimizer, batches: Iterable[Batch]) -> list[Tensor]:
        both, losses = list(batches), []
        for self.feedback in (False, True):
            losses += super().train_round(optimizer, both)
        return losses

    def parameter_groups(self) -> list[dict[str, Any]]:
        rates = {"decoder": self.config.decoder_lr, "feedback": self.config.feedback_lr}
        networks = self.networks.items()
        return [{"params": list(net.parameters()), "lr": rates.get(name, self.config.lr)} for name, net in networks]


def build(config: TFVAEGANConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> TFVAEGANModel:
    """A model to load weights into."""
    return TFVAEGANModel(config, d_a, d_z, len(weights["descriptors"]))


fit = generative_fit(TFVAEGANModel, TFVAEGANTraining)


# What differs from CUB in the authors' runs.
_PAPER: dict[str, dict[str, Any]] = {
    "SUN": {
        "classifier_lr": 5e-4,
        "epochs": 400,
        "lr": 1e-3,
        "synthesized": 400,
        "adversarial_weight": 1.0,
        "feedback_weight": 0.1,
        "feedback_lr": 1e-4,
    },
    "AWA2": {
        "epochs": 120,
        "lr": 1e-5,
        "synthesized": 1800,
        "semantic_weight": 0.1,
        "feedback_weight": 0.01,
        "feedback_lr": 1e-4,
    },
}


def paper(dataset: ZeroShotDataset) -> TFVAEGANConfig:
    """The authors' settings, those of CUB for other data; no calibration, and no choice of an epoch on test data."""
    config = TFVAEGANConfig(
        batch_size=64,
        classifier_epochs=25,
        epochs=300,
        lr=1e-4,
        hidden=4096,
        critic_steps=5,
        adversarial_weight=10.0,
        semantic_weight=0.01,
        decoder_lr=1e-4,
        feedback_lr=1e-5,
        attribute_normalization="unit-plain",
        calibration="none",
    )
    return config.replace(**_PAPER.get(dataset.benchmark or "", {}))


def reference(dataset: ZeroShotDataset) -> TFVAEGANConfig:
    """Narrow networks, large steps and other weights, selected by validation on CUB."""
    return TFVAEGANConfig(lr=rate(dataset, 1e-3), decoder_lr=rate(dataset, 1e-3), classifier_reach=0.5 * REACH)


METHOD = Method(
    config=TFVAEGANConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(5e-5, 2e-3, log=True),
        "epochs": Range(2, 15, log=True, whole=True),
        "hidden": Choice((512, 1024, 2048)),
        "batch_size": Choice((64, 128, 256)),
        "critic_steps": Choice((1, 2, 5)),
        "adversarial_weight": Range(0.1, 30.0, log=True),
        "semantic_weight": Range(1e-2, 10.0, log=True),
        "feedback_weight": Range(1e-2, 1.0, log=True),
        "synthesized": Range(50, 600, log=True, whole=True),
    },
    grid={
        "lr": Choice((3e-4, 1e-3)),
        "semantic_weight": Choice((0.01, 1.0)),
        "feedback_weight": Choice((0.01, 0.1, 1.0)),
    },
    sees_unseen=True,
)
