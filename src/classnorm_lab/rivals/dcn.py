"""DCN: features and descriptors in a common space, calibrated by the entropy over the unseen classes.

Liu, Long, Wang, Jordan: Generalized Zero-Shot Learning with Deep Calibration Network, NeurIPS 2018. With φ(x) a network
that ends in tanh, ψ(a) = 10·tanh(a) and f_c(x) = φ(x)ᵀψ(a_c), the loss of a row with label y is

    −log p_y + λ H(q),    p = softmax over the seen classes of f/τ,    q = softmax over the unseen classes of f/τ′

The cross-entropy with temperature calibrates the confidence in the seen classes. The entropy H(q) = −Σ q_c log q_c
makes a training row choose the unseen classes that are similar to its own, instead of all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted, Method, NormalizedConfig, TrainedMethodConfig
from classnorm.methods.model import NormalizedModel, ProductModel
from classnorm.methods.rows import TrainingRows
from classnorm.methods.space import Choice, Range
from classnorm.nn import AttributeNormalizationKind, entropy_regularizer
from classnorm.settings import NotNegative, Positive, Width, between
from classnorm.training import FitContext, Schedule, train
from classnorm_lab.rivals.parts.layers import StepDropout


@dataclass(frozen=True, kw_only=True)
class DCNConfig(TrainedMethodConfig, NormalizedConfig):
    """Settings of the Deep Calibration Network. The defaults are the recipe `reference`."""

    epochs: int = 20
    batch_size: int = 64
    lr: float = 3e-4
    weight_decay: float = 0.0
    schedule: Schedule = "cosine"
    feature_normalization: AttributeNormalizationKind = "none"
    attribute_normalization: AttributeNormalizationKind = "unit-plain"
    hidden: Width = 1024
    """Hidden units of the network from features to the common space."""
    dropout: Annotated[float, between(0, 0.99)] = 0.5
    """Share of hidden units dropped in training."""
    scale: Positive = 5.0
    """Factor of the inner products, the inverse temperature of the softmax over the seen classes."""
    unseen_scale: Positive = 0.03
    """The same for the softmax over the unseen classes, whose entropy is minimised."""
    entropy_weight: NotNegative = 1.0
    """Weight of that entropy; 0 trains without the descriptors of unseen classes."""


_DESCRIPTOR_SCALE = 10.0
_WEIGHT_STDS = (0.01, 0.03)  # of the two layers


class DCNModel(NormalizedModel, ProductModel):
    """A network from features to the space of the descriptors."""

    def __init__(self, config: DCNConfig, d_a: int, d_z: int, seed: int = 0) -> None:
        super().__init__(config, d_a, d_z)
        self.scale = config.scale
        self.hidden = nn.Linear(d_z, config.hidden)
        self.output = nn.Linear(config.hidden, d_a)
        generator = torch.Generator().manual_seed(seed)
        for layer, std in zip((self.hidden, self.output), _WEIGHT_STDS, strict=True):
            nn.init.normal_(layer.weight, std=std, generator=generator)
            nn.init.zeros_(layer.bias)

    def embed(self, normalized: Tensor, dropout: StepDropout | None = None) -> Tensor:
        """φ: normalized features [n, d_z] → [n, d_a]."""
        hidden = F.relu(self.hidden(normalized))
        embedded: Tensor = self.output(dropout(hidden) if dropout else hidden)
        return embedded.tanh()

    def row_vectors(self, features: Tensor) -> Tensor:
        return self.embed(self.feature_normalization(features))

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """ψ: [n_classes, d_a] → [n_classes, d_a]."""
        normalized: Tensor = self.attribute_normalization(descriptors)
        return _DESCRIPTOR_SCALE * normalized.tanh()

    def class_vectors(self, prototypes: Tensor) -> Tensor:
        return self.scale * prototypes


def dcn_loss(rows: Tensor, labels: Tensor, seen: Tensor, unseen: Tensor, config: DCNConfig) -> Tensor:
    """The mean loss of embedded rows.

    Shapes: [b, d_a], [b], prototypes [n_seen, d_a] and [n_unseen, d_a].
    """
    loss = F.cross_entropy(config.scale * (rows @ seen.T), labels)
    if config.entropy_weight and len(unseen):
        loss = loss - config.entropy_weight * entropy_regularizer(config.unseen_scale * (rows @ unseen.T))
    return loss


def build(config: DCNConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> DCNModel:
    """A model to load weights into."""
    return DCNModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: DCNConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows and the descriptors of all classes."""
    rows = TrainingRows.of(dataset, context.device)
    model = DCNModel(config, dataset.d_a, dataset.d_z, seed).to(context.device)
    features, _ = model.fit_normalization(rows)
    seen = model.prototypes(rows.descriptors)
    unseen = model.prototypes(torch.from_numpy(dataset.descriptors[~dataset.seen]).to(context.device))
    dropout = StepDropout(config.dropout, seed)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        return dcn_loss(model.embed(features, dropout), labels, seen, unseen, config)

    history = train(model, loss, features, rows.labels, config, seed=seed, context=context, on_step=dropout.start)
    return Fitted(model, history)


_PAPER_STEPS = 100_000
# In the authors' code; other datasets have the settings of CUB.
_PAPER: dict[str, dict[str, float]] = {
    "SUN": {"unseen_scale": 0.1},
    "AWA1": {"scale": 2.0},
    "AWA2": {"scale": 2.0},
    "APY": {"scale": 3.0, "unseen_scale": 1.0, "entropy_weight": 0.0},
}


def paper(dataset: ZeroShotDataset) -> DCNConfig:
    """The settings and the schedule of the authors' code, without calibration."""
    epochs = max(1, round(_PAPER_STEPS / -(-len(dataset.split.train) // 64)))
    config = DCNConfig(epochs=epochs, lr=1e-4, schedule="inverse", calibration="none")
    return config.replace(**_PAPER.get(dataset.benchmark or "", {}))


def reference(dataset: ZeroShotDataset) -> DCNConfig:
    """The network and the loss of `paper` for CUB; learning rate and epochs were selected by validation on CUB."""
    return DCNConfig()


METHOD = Method(
    config=DCNConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(3e-5, 1e-3, log=True),
        "epochs": Range(10, 40, log=True, whole=True),
        "scale": Range(1.0, 10.0, log=True),
        "unseen_scale": Range(0.01, 0.1, log=True),
        "entropy_weight": Range(0.03, 3.0, log=True),
        "dropout": Range(0.2, 0.8),
    },
    grid={
        "lr": Choice((1e-4, 3e-4)),
        "scale": Choice((2.0, 5.0)),
        "entropy_weight": Choice((0.1, 1.0)),
    },
    sees_unseen=True,
)
