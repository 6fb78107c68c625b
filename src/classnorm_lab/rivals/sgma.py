"""SGMA: attention to parts of an image, which with the whole are embedded in the space of the descriptors.

Zhu, Xie, Tang, Peng, Elgammal: Semantic-Guided Multi-Attention Localization for Zero-Shot Learning, NeurIPS 2019. The
feature map of an image has channels F_z at each position z. Part i weighs the channels by α_i, the output of two layers
and a sigmoid on the mean of F, and attends to positions in proportion to m_i(z) = exp(s r_i(z) − max), where r_i(z) is
α_i·F_z, standardized over positions. The mean over positions and the attended means of the parts, each of unit length,
map linearly to a vector x of the dimension of the descriptors. The loss is the weighted sum of

    embedding softmax     cross-entropy of x·a_c over the seen classes
    class-center triplet  max(0, 0.8 + ‖x̂ − ĉ_y‖² − min_{k≠y} ‖x̂ − ĉ_k‖²) with learnt centers c, all of unit length
    compactness           mean squared difference of m_i from a Gaussian around its peak
    diversity             mean of m_i(z) max(0, max_{k≠i} m_k(z) − 0.2)

and a class scores x·a_c.
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
from classnorm.errors import ConfigError
from classnorm.methods.method import Fitted, Method
from classnorm.methods.model import ProductModel
from classnorm.methods.rows import TrainingRows
from classnorm.methods.space import Choice, Range
from classnorm.nn import AttributeNormalization, AttributeNormalizationKind, initialize_
from classnorm.settings import Count, NotNegative, Positive, at_least
from classnorm.training import FitContext, Schedule, seeded, train
from classnorm_lab.rivals.parts.episodes import EmbedderConfig
from classnorm_lab.rivals.parts.layers import channels_of, check_positions


@dataclass(frozen=True, kw_only=True)
class SGMAConfig(EmbedderConfig):
    """Settings of SGMA. The defaults are the recipe `reference`, for pooled features."""

    epochs: int = 12
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-3
    schedule: Schedule = "cosine"
    attribute_normalization: AttributeNormalizationKind = "unit-plain"
    positions: Count = 1
    """Positions of the feature map in a row; recipes take it from the dataset; with 1 there are no parts."""
    parts: Annotated[int, at_least(0)] = 2
    """Parts with an attention map each; 0 uses the mean over positions alone."""
    hidden: int = 256
    """Hidden units of the channel attention of each part."""
    sharpness: Positive = 1.0
    """Contrast of the attention maps: scale of their responses, which have unit variance over the positions."""
    attention_weight: NotNegative = 1.0
    """Weight of the compactness and diversity of attention maps in the loss."""
    triplet_weight: NotNegative = 1.0
    """Weight of the class-center triplet loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if math.isqrt(self.positions) ** 2 != self.positions:
            raise ConfigError(f"positions is {self.positions}; it must be a square number, as feature maps are square")


_CENTER_MARGIN = 0.8
_OVERLAP_MARGIN = 0.2
_BLOB = 1.0  # standard deviation of the ideal attention map, in positions
_EPS = 1e-5  # added to the variance of responses, which may not vary


class ChannelAttention(nn.Module):
    """Weights of the channels for a part, from the mean over positions: [n, channels] → [n, channels]."""

    def __init__(self, channels: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = initialize_(nn.Linear(channels, hidden), "torch", generator=generator)
        self.second = initialize_(nn.Linear(hidden, channels), "torch", generator=generator)

    def forward(self, pooled: Tensor) -> Tensor:
        weights: Tensor = self.second(F.relu(self.first(pooled)))
        return weights.sigmoid()


class SGMAModel(ProductModel):
    """Channel attention of each part, and the embedding of rows in the space of the descriptors."""

    def __init__(self, config: SGMAConfig, d_a: int, d_z: int, seed: int = 0) -> None:
        super().__init__()
        self.positions, self.sharpness = config.positions, config.sharpness
        channels, generator = channels_of(d_z, config.positions), seeded(seed, 1)
        parts = config.parts if config.positions > 1 else 0
        self.parts = nn.ModuleList(ChannelAttention(channels, config.hidden, generator) for _ in range(parts))
        self.embedding = initialize_(nn.Linear((1 + parts) * channels, d_a), "torch", generator=generator)
        self.attributes = AttributeNormalization(d_a, config.attribute_normalization)

    def attend(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """[n, d_z] → the vectors x [n, d_a], and attention maps [n, parts, positions], whose peaks are 1."""
        maps = features.reshape(len(features), self.positions, -1)  # [n, positions, channels]
        pooled = maps.mean(dim=1, keepdim=True)
        attention = features.new_zeros(len(features), 0, self.positions)
        if len(self.parts):
            weights = torch.stack([part(pooled.squeeze(1)) for part in self.parts], dim=1)  # [n, parts, channels]
            attention = self._maps_of(weights @ maps.transpose(1, 2))
            attended = (attention / attention.sum(dim=2, keepdim=True)) @ maps  # [n, parts, channels]
            pooled = torch.cat([pooled, attended], dim=1)
        streams = F.normalize(pooled, dim=2) * math.sqrt(pooled.shape[2])
        vectors: Tensor = self.embedding(streams.flatten(1))
        return vectors, attention

    def _maps_of(self, responses: Tensor) -> Tensor:
        """Responses [n, parts, positions] → attention maps."""
        variance, mean = torch.var_mean(responses, dim=2, correction=0, keepdim=True)
        standard = (responses - mean) * (variance + _EPS * mean.square() + _EPS).rsqrt()
        return (self.sharpness * (standard - standard.amax(dim=2, keepdim=True))).exp()

    def row_vectors(self, features: Tensor) -> Tensor:
        """[n, d_z] → [n, d_a]."""
        return self.attend(features)[0]

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_a]."""
        normalized: Tensor = self.attributes(descriptors)
        return normalized

    def class_vectors(self, prototypes: Tensor) -> Tensor:
        return prototypes


def center_triplet(vectors: Tensor, centers: Tensor, labels: Tensor) -> Tensor:
    """Hinge of the squared distance to the own center against that to the nearest other one; all of unit length.

    >>> float(center_triplet(torch.eye(2), torch.eye(2), torch.tensor([0, 1])))
    0.0
    """
    distances = 2.0 - 2.0 * F.normalize(vectors, dim=1) @ F.normalize(centers, dim=1).T  # [n, n_seen]
    own = labels[:, None]
    others = distances.scatter(1, own, math.inf).amin(dim=1)
    return (_CENTER_MARGIN + distances.gather(1, own).squeeze(1) - others).relu().mean()


def compactness(attention: Tensor) -> Tensor:
    """Mean squared difference of attention maps [n, parts, positions] from Gaussians around their peaks."""
    side = math.isqrt(attention.shape[2])
    place = torch.arange(attention.shape[2], device=attention.device)
    rows, columns = ((axis[:, None] - axis[None]).float() for axis in (place // side, place % side))
    blobs = (-(rows.square() + columns.square()) / (2 * _BLOB**2)).exp()  # [positions, positions]
    return F.mse_loss(attention, blobs[attention.argmax(dim=2)])


def diversity(attention: Tensor) -> Tensor:
    """Mean overlap of the attention map of each part with the largest of the others, beyond a margin."""
    parts = attention.shape[1]
    if parts < 2:
        return attention.new_zeros(())
    others = torch.stack([attention[:, [k for k in range(parts) if k != i]].amax(dim=1) for i in range(parts)], dim=1)
    return (attention * (others - _OVERLAP_MARGIN).relu()).mean()


def build(config: SGMAConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> SGMAModel:
    """A model to load weights into."""
    return SGMAModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: SGMAConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows, which may stay in files."""
    check_positions(dataset, config.positions)
    rows = TrainingRows.stored(dataset, context.device)
    model = SGMAModel(config, dataset.d_a, dataset.d_z, seed).to(context.device)
    model.attributes.fit(rows.descriptors)
    descriptors = model.attributes(rows.descriptors)
    centers = nn.Parameter(descriptors.clone())
    trained = nn.ModuleList([model, nn.ParameterList([centers])])  # the centers serve training alone

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        vectors, attention = model.attend(features)
        total = F.cross_entropy(vectors @ descriptors.T, labels)
        total = total + config.triplet_weight * center_triplet(vectors, centers, labels)
        if len(model.parts):
            total = total + config.attention_weight * (compactness(attention) + diversity(attention))
        return total

    return Fitted(model, train(trained, loss, rows.features, rows.labels, config, seed=seed, context=context))


def paper(dataset: ZeroShotDataset) -> SGMAConfig:
    """The published margins and two parts, without calibration; of the schedule we know too little to follow it."""
    return SGMAConfig(epochs=30, batch_size=32, positions=dataset.positions, calibration="none")


def reference(dataset: ZeroShotDataset) -> SGMAConfig:
    """A short schedule, selected by validation on feature maps of CUB."""
    return SGMAConfig(positions=dataset.positions)


METHOD = Method(
    config=SGMAConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(2e-4, 5e-3, log=True),
        "epochs": Range(8, 40, log=True, whole=True),
        "weight_decay": Range(1e-6, 1e-3, log=True),
        "sharpness": Range(0.5, 5.0, log=True),
        "parts": Choice((1, 2, 4)),
        "triplet_weight": Range(0.1, 3.0, log=True),
    },
    grid={
        "lr": Choice((5e-4, 2e-3)),
        "sharpness": Choice((1.0, 3.0)),
        "triplet_weight": Choice((0.3, 1.0)),
    },
    parallel=True,
)
