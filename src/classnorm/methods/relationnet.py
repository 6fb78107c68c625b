"""RelationNet: a network that is told a prototype and a feature, and learns how well they go together.

Sung, Yang, Zhang, Xiang, Torr, Hospedales: Learning to Compare: Relation Network for Few-Shot Learning, CVPR 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import Fitted, Method, MethodConfig, TrainingRows, ZeroShotModel
from classnorm.methods.parts.episode import classes_of, prototypes_of
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeEmbedder, AttributeNormalizationKind, initialize_
from classnorm.training import FitContext, Schedule, TrainingConfig, train

__all__ = ["METHOD", "RelationNetConfig", "RelationNetModel", "base_rate_logit", "relation_loss"]

_CHUNK = 1 << 22  # numbers of the pairwise tensor held together in evaluation: 16 MB, which a cache still serves


@dataclass(frozen=True, kw_only=True)
class RelationNetConfig(MethodConfig, TrainingConfig):
    """The publication's two networks. The defaults are the `reference` recipe."""

    epochs: int = 10
    """Passes over the training rows; the model of the last one is the result."""
    batch_size: int = 32
    """Rows per step; they compete with one another's classes."""
    lr: float = 3e-4
    """Learning rate."""
    weight_decay: float = 1e-5
    """L2 penalty of the weights of the attribute network; the relation network has none."""
    schedule: Schedule = "cosine"
    """How the learning rate falls: not at all, once by `lr_drop`, again and again by it, or along a cosine to 0."""
    hidden: int = 1200
    """Width of the attribute network."""
    relation_hidden: int = 1200
    """Width of the relation network."""
    attribute_normalization: AttributeNormalizationKind = "unit"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""
    start_at_base_rate: bool = True
    """Start the last bias where the scores equal the share of matching pairs, instead of near 0.5: the training skips a
    plateau of many epochs, in which it only finds out that most pairs do not match."""
    class_norm: bool = False
    """Class standardization before the last layer of the attribute network, and proper variance for that layer."""

    def check(self) -> None:
        MethodConfig.check(self)
        TrainingConfig.check(self)
        for name in ("hidden", "relation_hidden"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")


class RelationNetModel(ZeroShotModel):
    r"""Attribute network :math:`p = f(a)` and relation network :math:`w^\top \mathrm{ReLU}(W [p; z] + b) + b'`.

    :math:`W [p; z] = W_p p + W_z z`, so each half is computed once for each class and each row, and only their sum is
    pairwise.
    """

    def __init__(self, config: RelationNetConfig, d_a: int, d_z: int, embedder: AttributeEmbedder) -> None:
        super().__init__()
        self.embedder = embedder
        self.of_prototype = nn.Linear(d_z, config.relation_hidden)  # W_p and b
        self.of_feature = nn.Linear(d_z, config.relation_hidden, bias=False)  # W_z
        self.output = nn.Linear(config.relation_hidden, 1)

    def prototypes(self, descriptors: Tensor) -> Tensor:
        result: Tensor = self.embedder(descriptors)
        return result

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """Relation scores before the sigmoid: the same ranking, without its ties near 0 and 1, and on a scale on which
        a calibration bias means the same everywhere."""
        classes = self.of_prototype(prototypes)  # [n_classes, h]
        if torch.is_grad_enabled():
            return self._relate(self.of_feature(features), classes)
        h = classes.shape[1]
        class_step = max(1, min(len(classes), _CHUNK // h))
        row_step = max(1, _CHUNK // (h * class_step))
        result = features.new_empty(len(features), len(classes))
        for i in range(0, len(features), row_step):
            rows = self.of_feature(features[i : i + row_step])
            for j in range(0, len(classes), class_step):
                result[i : i + row_step, j : j + class_step] = self._relate(rows, classes[j : j + class_step])
        return result

    def _relate(self, rows: Tensor, classes: Tensor) -> Tensor:
        """[n, h], [n_classes, h] → [n, n_classes]."""
        scores: Tensor = self.output((rows[:, None] + classes[None]).relu_())
        return scores.squeeze(2)


def relation_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of sigmoid relation scores [b, n] against the one-hot of the targets [b]."""
    return F.mse_loss(scores.sigmoid(), F.one_hot(targets, scores.shape[1]).to(scores))


def _model(config: RelationNetConfig, d_a: int, d_z: int, seed: int, descriptors: Tensor) -> RelationNetModel:
    embedder = AttributeEmbedder(
        d_a,
        d_z,
        layers=2,
        hidden=config.hidden,
        attribute_normalization=config.attribute_normalization,
        normalization="class" if config.class_norm else "none",
        init="proper" if config.class_norm else "torch",
        seed=seed,
        descriptors=descriptors,
    )
    model = RelationNetModel(config, d_a, d_z, embedder)
    generator = torch.Generator().manual_seed(seed + 1)
    # One layer over the concatenation: PyTorch's own initialisation, with the fan-in of both halves.
    whole = initialize_(nn.Linear(2 * d_z, config.relation_hidden), "torch", generator=generator)
    with torch.no_grad():
        model.of_prototype.weight.copy_(whole.weight[:, :d_z])
        model.of_feature.weight.copy_(whole.weight[:, d_z:])
        model.of_prototype.bias.copy_(whole.bias)
    initialize_(model.output, "torch", generator=generator)
    return model


def base_rate_logit(labels: Tensor, batch_size: int) -> float:
    """Logit of the share of matching (row, class) pairs in a random batch: one in as many as it has classes.

    >>> round(base_rate_logit(torch.arange(10), batch_size=10_000), 3)  # −log 9
    -2.197
    """
    share = labels.bincount() / len(labels)
    classes = float((1.0 - (1.0 - share) ** batch_size).sum())  # expected number of distinct ones
    return -math.log(max(classes, 2.0) - 1.0)


def build(config: RelationNetConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> RelationNetModel:
    """A model to load weights into."""
    return _model(config, d_a, d_z, 0, torch.zeros(2, d_a))


def fit(dataset: ZeroShotDataset, config: RelationNetConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    config.check()
    rows = TrainingRows.of(dataset, context.device)
    model = _model(config, dataset.d_a, dataset.d_z, seed, rows.descriptors.cpu())
    if config.start_at_base_rate:
        nn.init.constant_(model.output.bias, base_rate_logit(rows.labels.cpu(), config.batch_size))
    model.to(context.device)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        classes, targets = classes_of(labels)
        scores = model.logits(features, prototypes_of(model.embedder, rows.descriptors, classes))
        return relation_loss(scores, targets)

    history = train(
        model,
        loss,
        rows.features,
        rows.labels,
        config,
        seed=seed,
        no_decay=[p for name, p in model.named_parameters() if not name.startswith("embedder.")],
        context=context,
    )
    return Fitted(model, history)


def paper(dataset: ZeroShotDataset) -> RelationNetConfig:
    """The publication's schedule: 200,000 steps and widths 1200 (AwA and other small sets of classes: 500,000 steps,
    widths 1024 and 400), the learning rate halved every 30,000."""
    benchmark = dataset.benchmark
    small = benchmark in ("AWA1", "AWA2") or (benchmark is None and dataset.n_classes <= 100)
    steps = 500_000 if small else 200_000
    steps_per_epoch = -(-len(dataset.split.train) // 32)
    return RelationNetConfig(
        epochs=max(1, round(steps / steps_per_epoch)),
        lr=1e-5,
        schedule="steps",
        lr_drop=0.5,
        lr_drop_at=30_000 / steps,
        hidden=1024 if small else 1200,
        relation_hidden=400 if small else 1200,
        attribute_normalization="none",
        start_at_base_rate=False,
    )


def reference(dataset: ZeroShotDataset) -> RelationNetConfig:
    """A short schedule with the better of two learning rates on validation. More epochs still help, with class
    normalization and without."""
    return RelationNetConfig()


def class_norm(dataset: ZeroShotDataset) -> RelationNetConfig:
    """`reference` with class normalization."""
    return reference(dataset).replace(class_norm=True)


RECIPES: dict[str, Callable[[ZeroShotDataset], MethodConfig]] = {
    "paper": paper,
    "reference": reference,
    "class-norm": class_norm,
}
SPACE: Space = {
    "lr": Range(1e-4, 2e-3, log=True),
    "epochs": Range(4, 16, log=True, whole=True),
    "class_norm": Choice((False, True)),
    "weight_decay": Range(1e-6, 1e-3, log=True),
}
GRID: Space = {
    "lr": Choice((3e-4, 1e-3)),
    "epochs": Choice((4, 8)),
    "class_norm": Choice((False, True)),
}
METHOD = Method(config=RelationNetConfig, recipes=RECIPES, build=build, fit=fit, space=SPACE, grid=GRID)
