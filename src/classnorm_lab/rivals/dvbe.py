"""DVBE: a visual classifier for seen classes, whose entropy tells seen from unseen rows, and an alignment for unseen.

Min, Yao, Xie, Wang, Zha, Zhang: Domain-aware Visual Bias Eliminating for Generalized Zero-Shot Learning, CVPR 2020.
A classifier on second-order features gives p(c | z) over the seen classes: on all products of two projections of the
features, summed over the positions of a feature map. It is trained with an adaptive margin: the logit of the true class
y, counted from the mean of the logits, is multiplied by exp(−(p(y | z) − 1)² / σ). An embedder P maps descriptors to
feature space, trained with 1 − cos(z, P(a_y)), where z is the mean over positions. The scores are

    seen c:    log p(c | z)
    unseen c:  γ² cos(z, P(a_c)) − log Σ_seen exp(γ² cos(z, P(a_s))) + w H(z),    H(z) = −Σ_seen p log p

so that a row whose entropy H is high goes to the unseen classes. With a large w the entropy alone decides, as
published, and the bias of the calibration is the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted, Method, NormalizedConfig
from classnorm.methods.rows import TrainingRows
from classnorm.methods.space import Choice, Range
from classnorm.nn import AttributeNormalization, cosine_logits, initialize_
from classnorm.settings import Count, NotNegative, Positive, Width, added_setting
from classnorm.training import FitContext, Schedule, StoredRows, seeded, train
from classnorm_lab.rivals.parts.episodes import EmbedderConfig, EmbedderModel
from classnorm_lab.rivals.parts.layers import channels_of, check_positions, known_classes


@dataclass(frozen=True, kw_only=True)
class DVBEConfig(EmbedderConfig, NormalizedConfig):
    """Settings of DVBE. The defaults are the recipe `reference`, for pooled features."""

    epochs: int = 15
    batch_size: int = 128
    lr: float = 1e-3
    schedule: Schedule = "cosine"
    hidden: int = 1024
    channels: Width = 64
    """Channels of each of the two projections whose products are the second-order features."""
    positions: Count = added_setting(1)
    """Positions of the feature map in a row, over which the products are summed; recipes take it from the dataset."""
    margin_width: NotNegative = 1.0
    """Width σ of the adaptive margin: smaller ones are stricter with rows that are not yet recognised; 0 has none."""
    gamma: Positive = 6.0
    """Scale γ of the alignment: the scores of unseen classes are γ² times cosines."""
    gate_weight: NotNegative = 0.5
    """Weight of the entropy over seen classes in the scores of unseen ones; with a large one it alone decides."""
    final_relu: bool = True
    """ReLU on the prototypes, for non-negative features; recipes set it to match the data."""


_EPS = 1e-6  # keeps the slope of the square root finite at 0
_CHUNK = 1 << 22  # products of channels at a time in evaluation
_BLOCK = 256  # rows at a time in the statistics of features


class SecondOrderClassifier(nn.Module):
    """A linear classifier on the products of two projections, summed over positions, after signed square root and
    scaling to length √channels."""

    def __init__(self, d_z: int, channels: int, n_classes: int, seed: int) -> None:
        super().__init__()
        self.left = nn.Linear(d_z, channels)
        self.right = nn.Linear(d_z, channels)
        self.output = nn.Linear(channels * channels, n_classes)
        generator = seeded(seed, 1)
        for layer in (self.left, self.right, self.output):
            initialize_(layer, "torch", generator=generator)

    def forward(self, maps: Tensor) -> Tensor:
        """[n, positions, d_z] → logits [n, n_classes]."""
        if torch.is_grad_enabled():
            return self._classify(maps)
        size = max(1, _CHUNK // self.output.in_features)
        return torch.cat([self._classify(block) for block in torch.split(maps, size)])

    def _classify(self, maps: Tensor) -> Tensor:
        logits: Tensor = self.output(_second_order(self.left(maps), self.right(maps)))
        return logits


def _second_order(left: Tensor, right: Tensor) -> Tensor:
    """Two projections [n, positions, channels] → [n, channels²]."""
    if left.shape[1] == 1:  # root and length of a product are the products of roots and lengths
        return (_rooted(left).transpose(1, 2) * _rooted(right)).flatten(1)
    return _rooted((left.transpose(1, 2) @ right).flatten(1))


def _rooted(values: Tensor) -> Tensor:
    """Signed square roots, scaled to a length of the fourth root of their number."""
    roots = values * (values.abs() + _EPS).rsqrt()
    return F.normalize(roots, dim=-1) * math.sqrt(math.sqrt(values.shape[-1]))


def margin_cross_entropy(logits: Tensor, labels: Tensor, width: float) -> Tensor:
    """Cross-entropy with an adaptive margin: rows of low probability p need a larger lead; width 0 has no margin.

    The lead of the true class over the mean logit counts exp(−(p − 1)² / width) times.

    >>> logits = torch.tensor([[1.0, -1.0]])
    >>> plain = margin_cross_entropy(logits, torch.tensor([0]), 0.0)
    >>> bool(margin_cross_entropy(logits, torch.tensor([0]), 0.5) > plain)
    True
    """
    if not width:
        return F.cross_entropy(logits, labels)
    own = labels[:, None]
    with torch.no_grad():
        factor = (-(logits.softmax(dim=1).gather(1, own) - 1.0).square() / width).exp()
    centred = logits - logits.mean(dim=1, keepdim=True)
    return F.cross_entropy(centred.scatter(1, own, factor * centred.gather(1, own)), labels)


class DVBEModel(EmbedderModel):
    """The visual classifier, the embedder and the seen descriptors; all other classes are unseen."""

    descriptors: Tensor  # [n_seen, d_a], raw

    def __init__(
        self,
        config: DVBEConfig,
        d_a: int,
        d_z: int,
        n_seen: int,
        seed: int = 0,
        descriptors: Tensor | None = None,
    ) -> None:
        channels = channels_of(d_z, config.positions)
        super().__init__(config, d_a, channels, seed, descriptors, final_relu=config.final_relu)
        self.gamma, self.gate_weight, self.positions = config.gamma, config.gate_weight, config.positions
        self.feature_normalization = AttributeNormalization(channels, config.feature_normalization)
        self.classifier = SecondOrderClassifier(channels, config.channels, n_seen, seed)
        self.register_buffer("descriptors", torch.zeros(n_seen, d_a) if descriptors is None else descriptors.clone())

    def maps(self, features: Tensor) -> Tensor:
        """[n, d_z] → [n, positions, d_z / positions]."""
        return features.reshape(len(features), self.positions, -1)

    def pooled(self, features: Tensor) -> Tensor:
        """[n, d_z] → [n, d_z / positions], the mean over positions."""
        return features if self.positions == 1 else self.maps(features).mean(dim=1)

    def visual_logits(self, features: Tensor) -> Tensor:
        """[n, d_z] → [n, n_seen]."""
        logits: Tensor = self.classifier(self.feature_normalization(self.maps(features)))
        return logits

    @torch.no_grad()
    def fit_normalization(self, features: Tensor | StoredRows) -> None:
        """Compute mean and standard deviation of each channel over training rows [n, d_z] and positions."""
        normalization, n = self.feature_normalization, 0
        sums = torch.zeros(2, len(normalization.mean), dtype=torch.float64)
        for block in features.blocks(_BLOCK) if isinstance(features, StoredRows) else torch.split(features, _BLOCK):
            values = self.maps(block).flatten(0, 1).to("cpu", torch.float64)  # which not every device has
            sums += torch.stack([values.sum(dim=0), values.square().sum(dim=0)])
            n += len(values)
        mean, square = sums / n
        normalization.mean.copy_(mean)
        normalization.std.copy_((square - mean.square()).clamp_min(0).sqrt())

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d + 1], the embedding and the number of the seen class, −1 if unseen."""
        number = known_classes(descriptors, self.descriptors)[:, None]
        return torch.cat([super().prototypes(descriptors), number.to(descriptors.dtype)], dim=1)

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        log_p = self.visual_logits(features).log_softmax(dim=1)
        entropy = -(log_p.exp() * log_p).sum(dim=1, keepdim=True)  # [n, 1]
        pooled = self.pooled(features)
        among_seen = cosine_logits(pooled, self.embedder(self.descriptors), self.gamma)
        unseen = cosine_logits(pooled, prototypes[:, :-1], self.gamma) - among_seen.logsumexp(dim=1, keepdim=True)
        number = prototypes[:, -1].long()
        return torch.where(number >= 0, log_p[:, number.clamp_min(0)], unseen + self.gate_weight * entropy)


def build(config: DVBEConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> DVBEModel:
    """A model to load weights into."""
    return DVBEModel(config, d_a, d_z, len(weights["descriptors"]))


def fit(dataset: ZeroShotDataset, config: DVBEConfig, seed: int, context: FitContext) -> Fitted:
    """Train both heads on the training rows, which may stay in files."""
    check_positions(dataset, config.positions)
    rows = TrainingRows.stored(dataset, context.device)
    model = DVBEModel(config, dataset.d_a, dataset.d_z, len(rows.descriptors), seed, rows.descriptors)
    model.to(context.device).fit_normalization(rows.features)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        recognition = margin_cross_entropy(model.visual_logits(features), labels, config.margin_width)
        own = model.embedder(rows.descriptors).index_select(0, labels)
        return recognition + (1.0 - F.cosine_similarity(model.pooled(features), own)).mean()

    return Fitted(model, train(model, loss, rows.features, rows.labels, config, seed=seed, context=context))


def paper(dataset: ZeroShotDataset) -> DVBEConfig:
    """The schedule of the released code for a fixed backbone, with Adam for both heads (there the classifier has SGD).
    The entropy alone decides, with a threshold from validation."""
    return DVBEConfig(
        epochs=90,
        schedule="steps",
        lr_drop_at=1 / 3,
        channels=256,
        positions=dataset.positions,
        margin_width=0.5,
        gate_weight=100.0,
        attribute_normalization="none",
        final_relu=dataset.nonnegative,
        calibration="validation:bias",
    )


def reference(dataset: ZeroShotDataset) -> DVBEConfig:
    """A short schedule; entropy and alignment decide together. Selected by validation on CUB."""
    return DVBEConfig(positions=dataset.positions, final_relu=dataset.nonnegative)


METHOD = Method(
    config=DVBEConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(3e-4, 3e-3, log=True),
        "epochs": Range(8, 40, log=True, whole=True),
        "channels": Choice((32, 64, 128)),
        "margin_width": Range(0.3, 3.0, log=True),
        "gamma": Range(3.0, 9.0),
        "gate_weight": Range(0.1, 3.0, log=True),
    },
    grid={
        "lr": Choice((5e-4, 1e-3)),
        "gamma": Choice((4.0, 6.0)),
        "gate_weight": Choice((0.0, 0.5, 1.0)),
    },
    parallel=True,
)
