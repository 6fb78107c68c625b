"""RelationNet: a network that learns to score pairs of prototypes and features.

Sung, Yang, Zhang, Xiang, Torr, Hospedales: Learning to Compare: Relation Network for Few-Shot Learning, CVPR 2018.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted, Method
from classnorm.methods.rows import TrainingRows
from classnorm.methods.space import Choice, Range
from classnorm.nn import initialize_
from classnorm.settings import Width
from classnorm.training import FitContext, train
from classnorm_lab.rivals.parts.episodes import EmbedderModel, EpisodeConfig, classes_of


@dataclass(frozen=True, kw_only=True)
class RelationNetConfig(EpisodeConfig):
    """Settings of RelationNet. The defaults are the recipe `reference`."""

    epochs: int = 10
    batch_size: int = 32
    """Rows per step; each is scored against the classes of the batch."""
    lr: float = 3e-4
    weight_decay: float = 1e-5
    """L2 penalty of the embedder's weights; the relation network has none."""
    relation_hidden: Width = 1200
    """Width of the relation network."""
    start_at_base_rate: bool = True
    """Start the last bias so that the scores equal the share of matching pairs instead of about 0.5. This skips a
    plateau of many epochs that only learns that most pairs do not match."""


_CHUNK = 1 << 22  # elements of the pairwise tensor at a time in evaluation: 16 MB, which fits a cache


class RelationNetModel(EmbedderModel):
    r"""Embedder :math:`p = f(a)` and relation network :math:`w^\top \mathrm{ReLU}(W [p; z] + b) + b'`.

    :math:`W [p; z] = W_p p + W_z z`, so each half is computed once per class and once per row; only their sum is
    pairwise.
    """

    def __init__(
        self, config: RelationNetConfig, d_a: int, d_z: int, seed: int = 0, descriptors: Tensor | None = None
    ) -> None:
        super().__init__(config, d_a, d_z, seed, descriptors, class_norm=config.class_norm)
        self.of_prototype = nn.Linear(d_z, config.relation_hidden)  # W_p and b
        self.of_feature = nn.Linear(d_z, config.relation_hidden, bias=False)  # W_z
        self.output = nn.Linear(config.relation_hidden, 1)
        generator = torch.Generator().manual_seed(seed + 1)
        # One layer over the concatenation, initialised as PyTorch does, with the fan-in of both halves.
        layer = initialize_(nn.Linear(2 * d_z, config.relation_hidden), "torch", generator=generator)
        with torch.no_grad():
            self.of_prototype.weight.copy_(layer.weight[:, :d_z])
            self.of_feature.weight.copy_(layer.weight[:, d_z:])
            self.of_prototype.bias.copy_(layer.bias)
        initialize_(self.output, "torch", generator=generator)

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """Relation scores before the sigmoid: the same ranking without ties near 0 and 1, on a scale where a
        calibration bias has the same effect everywhere."""
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
    """Mean squared error of the sigmoid of scores [b, n] against one-hot targets [b]."""
    return F.mse_loss(scores.sigmoid(), F.one_hot(targets, scores.shape[1]).to(scores))


def base_rate_logit(labels: Tensor, batch_size: int) -> float:
    """Logit of the share of matching (row, class) pairs in a random batch, 1 over its number of classes.

    >>> round(base_rate_logit(torch.arange(10), batch_size=10_000), 3)  # −log 9
    -2.197
    """
    share = labels.bincount() / len(labels)
    classes = float((1.0 - (1.0 - share) ** batch_size).sum())  # expected number of distinct ones
    return -math.log(max(classes, 2.0) - 1.0)


def build(config: RelationNetConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> RelationNetModel:
    """A model to load weights into."""
    return RelationNetModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: RelationNetConfig, seed: int, context: FitContext) -> Fitted:
    """Train on the training rows."""
    rows = TrainingRows.of(dataset, context.device)
    model = RelationNetModel(config, dataset.d_a, dataset.d_z, seed, rows.descriptors)
    if config.start_at_base_rate:
        nn.init.constant_(model.output.bias, base_rate_logit(rows.labels.cpu(), config.batch_size))
    model.to(context.device)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        classes, targets = classes_of(labels)
        scores = model.logits(features, model.embedder.prototypes_of(rows.descriptors, classes))
        return relation_loss(scores, targets)

    no_decay = [p for name, p in model.named_parameters() if not name.startswith("embedder.")]
    history = train(model, loss, rows.features, rows.labels, config, seed=seed, context=context, no_decay=no_decay)
    return Fitted(model, history)


def paper(dataset: ZeroShotDataset) -> RelationNetConfig:
    """The published schedule: 200,000 steps and widths of 1200 (AwA and other datasets of up to 100 classes: 500,000
    steps, widths 1024 and 400), the learning rate halved every 30,000 steps."""
    benchmark = dataset.benchmark
    small = benchmark in ("AWA1", "AWA2") or (benchmark is None and dataset.n_classes <= 100)
    steps = 500_000 if small else 200_000
    return RelationNetConfig(
        epochs=max(1, round(steps / -(-len(dataset.split.train) // 32))),
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
    """A short schedule, with the better of two learning rates on validation; more epochs still help."""
    return RelationNetConfig()


METHOD = Method(
    config=RelationNetConfig,
    recipes={
        "paper": paper,
        "reference": reference,
        "class-norm": lambda dataset: reference(dataset).replace(class_norm=True),
    },
    build=build,
    fit=fit,
    space={
        "lr": Range(1e-4, 2e-3, log=True),
        "epochs": Range(4, 16, log=True, whole=True),
        "class_norm": Choice((False, True)),
        "weight_decay": Range(1e-6, 1e-3, log=True),
    },
    grid={
        "lr": Choice((3e-4, 1e-3)),
        "epochs": Choice((4, 8)),
        "class_norm": Choice((False, True)),
    },
)
