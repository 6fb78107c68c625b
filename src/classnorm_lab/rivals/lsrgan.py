"""LsrGAN: f-CLSWGAN whose generated features mirror the similarities between descriptors.

Vyas, Venkateswara, Panchanathan: Leveraging Seen and Unseen Semantic Relationships for Generative Zero-Shot Learning,
ECCV 2020. The generator's loss of f-CLSWGAN gets two terms. With the real means μ_j of the seen classes and the mean
μ̃_i of features generated for class i, the centroid loss is the mean of ‖μ̃_i − μ_i‖ over seen classes, and the
relation loss

    [|cos(μ̃_i, μ_j) − cos(a_i, a_j)| − ε]₊²

is averaged over some seen and some unseen classes i, drawn in each step, and the seen classes j with the most similar
descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method
from classnorm.methods.space import Choice, Range
from classnorm.settings import Count, NotNegative
from classnorm_lab.rivals.fclswgan import FCLSWGANConfig, FCLSWGANTraining
from classnorm_lab.rivals.parts.adversarial import Batch, ScaledRows, build, generative_fit
from classnorm_lab.rivals.parts.generator import GenerativeModel
from classnorm_lab.rivals.parts.softmax_rows import REACH


@dataclass(frozen=True, kw_only=True)
class LsrGANConfig(FCLSWGANConfig):
    """Settings of LsrGAN. The recipe `reference` sets what differs from the defaults."""

    epochs: int = 3
    lr: float = 5e-4
    hidden: int = 512
    classifier_lr: float = 2e-3
    classifier_epochs: int = 12
    centroid_weight: NotNegative = 1.0
    """Weight of the distance between generated and real means of seen classes."""
    relation_weight: NotNegative = 20.0
    """Weight of the relation loss."""
    relation_slack: NotNegative = 0.1
    """Difference ε between similarities of features and of descriptors that the relation loss tolerates."""
    neighbours: Count = 20
    """Seen classes to which the relation loss compares a class."""
    mean_rows: Count = 8
    """Generated features per class mean; the classes of a step are as many as make a batch."""


def class_means(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """[n, d_z], [n] → [n_classes, d_z]."""
    sums = features.new_zeros(n_classes, features.shape[1]).index_add_(0, labels, features)
    return sums / labels.bincount(minlength=n_classes)[:, None]


class Relations:
    """Similarities between some classes and the seen classes.

    Args:
        descriptors: [k, d_a].
        seen: [n_seen, d_a], descriptors of the seen classes.
        means: [n_seen, d_z], means of their features.
        neighbours: how many seen classes count for each class: those with the most similar descriptors.
    """

    def __init__(self, descriptors: Tensor, seen: Tensor, means: Tensor, neighbours: int) -> None:
        cosines = F.normalize(descriptors, dim=1) @ F.normalize(seen, dim=1).T
        self.cosines, self.nearest = cosines.topk(min(neighbours, len(seen)), dim=1)  # [k, neighbours]
        self.means = F.normalize(means, dim=1)

    def loss(self, classes: Tensor, generated: Tensor, slack: float) -> Tensor:
        """How far means of generated features [b, d_z] of some classes [b] are from mirroring the descriptors."""
        cosines = (F.normalize(generated, dim=1) @ self.means.T).gather(1, self.nearest[classes])
        loss: Tensor = ((cosines - self.cosines[classes]).abs() - slack).relu().square().mean()
        return loss


class LsrGANTraining(FCLSWGANTraining):
    """The training of f-CLSWGAN with the centroid and the relation loss."""

    config: LsrGANConfig

    def __init__(self, model: GenerativeModel, rows: ScaledRows, config: LsrGANConfig, seed: int) -> None:
        super().__init__(model, rows, config, seed)
        self.means = class_means(rows.features, rows.labels, len(rows.seen))
        self.seen, self.unseen = (
            Relations(descriptors, rows.seen, self.means, config.neighbours) for descriptors in (rows.seen, rows.unseen)
        )

    def generated_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        config = self.config
        classes, means = self.generated_means(self.rows.seen, config.mean_rows, batch)
        centroid = (means - self.means[classes]).norm(dim=1).mean()
        loss: Tensor = super().generated_loss(fake, batch) + config.centroid_weight * centroid
        if config.relation_weight:
            relation = self.seen.loss(classes, means, config.relation_slack)
            if len(self.rows.unseen):
                classes, means = self.generated_means(self.rows.unseen, config.mean_rows, batch)
                relation = relation + self.unseen.loss(classes, means, config.relation_slack)
            loss = loss + config.relation_weight * relation
        return loss


fit = generative_fit(GenerativeModel, LsrGANTraining)


def paper(dataset: ZeroShotDataset) -> LsrGANConfig:
    """The networks and schedule of the authors' scripts, with the relation loss of the paper; no calibration."""
    config = LsrGANConfig(
        epochs=40,
        lr=1e-4,
        hidden=4096,
        classification_weight=0.01,
        classifier_lr=1e-3,
        classifier_epochs=25,
        attribute_normalization="unit-plain",
        final_relu=dataset.nonnegative,
        mean_rows=1,
        calibration="none",
    )
    if dataset.benchmark == "SUN":
        return config.replace(epochs=20, lr=2e-4, classification_weight=0.03, relation_weight=10.0, synthesized=400)
    if dataset.benchmark in ("AWA1", "AWA2"):
        return config.replace(epochs=18, lr=1e-5, classification_weight=0.001, relation_slack=0.15, synthesized=1800)
    return config


def released(dataset: ZeroShotDataset) -> LsrGANConfig:
    """Like `paper`, but without the relation loss: the authors' code computes it outside of the gradient."""
    return paper(dataset).replace(relation_weight=0.0)


def reference(dataset: ZeroShotDataset) -> LsrGANConfig:
    """A short schedule and weights selected by validation on CUB."""
    return LsrGANConfig(final_relu=dataset.nonnegative, classifier_reach=REACH)


METHOD = Method(
    config=LsrGANConfig,
    recipes={"paper": paper, "reference": reference, "released": released},
    build=build,
    fit=fit,
    space={
        "lr": Range(5e-5, 2e-3, log=True),
        "epochs": Range(2, 20, log=True, whole=True),
        "classification_weight": Range(1e-2, 10.0, log=True),
        "centroid_weight": Range(0.01, 10.0, log=True),
        "relation_weight": Range(1.0, 1000.0, log=True),
        "synthesized": Range(50, 600, log=True, whole=True),
    },
    grid={
        "centroid_weight": Choice((0.1, 1.0)),
        "relation_weight": Choice((0.0, 20.0, 200.0)),
        "relation_slack": Choice((0.05, 0.1)),
    },
    sees_unseen=True,
)
