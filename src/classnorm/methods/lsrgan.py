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

import torch.nn.functional as F
from torch import Tensor

from classnorm.methods.fclswgan import ClassifiedGame
from classnorm.methods.parts.generation import Batch, GameRows, GenerativeModel, build, generative_fit
from classnorm.methods.settings.lsrgan import METHOD, LsrGANConfig

__all__ = ["METHOD", "LsrGANConfig", "Relations", "build", "class_means", "fit"]


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


class LsrGame(ClassifiedGame):
    """The game of f-CLSWGAN with the centroid and the relation loss."""

    config: LsrGANConfig

    def __init__(self, model: GenerativeModel, rows: GameRows, config: LsrGANConfig, seed: int) -> None:
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


fit = generative_fit(GenerativeModel, LsrGame)
