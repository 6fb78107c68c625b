"""A softmax classifier of real and generated features, and the row of a class that is added later."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import DescriptorConfig, MethodConfig
from classnorm.methods.model import ZeroShotModel
from classnorm.settings import Count, NotNegative, Positive, Steps, added_setting, at_most
from classnorm.training import TrainingConfig, gradient_step, train
from classnorm_lab.rivals.parts.layers import known_classes

# Classes added after training:
_CONTRAST_PER_CLASS = 32  # features generated per class
_CONTRAST_ROWS = 20_000  # features generated for all known classes, at most
_NEW_CLASS_STEPS = 150  # optimizer steps

REACH = 3.0
"""`classifier_reach` of the recipes `reference`, from validation on CUB; stored configs without it have 0."""
_TUNED_WIDTH = 312  # descriptors for which the rates of the recipes `reference` were selected


def rate(dataset: ZeroShotDataset, lr: float) -> float:
    """A learning rate selected on CUB's attributes, lowered for wider descriptors.

    A step of Adam moves every weight by about the rate, and so a hidden unit by about the rate times the sum of its
    inputs, which grows with the width of descriptors and noise. With sentence vectors, rates of 1e-3 collapse.
    """
    return lr * min(1.0, _TUNED_WIDTH / dataset.d_a)


@dataclass(frozen=True, kw_only=True)
class SoftmaxRowsConfig(MethodConfig, DescriptorConfig):
    """Settings of a softmax classifier trained on real and generated features."""

    batch_size: Count = 64
    """Rows per step."""
    synthesized: Annotated[Count, at_most(10**6)] = 300
    """Generated features per unseen class for the final classifier."""
    classifier_lr: Positive = 1e-3
    """Learning rate of the softmax classifiers; the final one uses `classifier_reach` if that is set."""
    classifier_epochs: Steps = 25
    """Passes of the softmax classifiers over their rows."""
    classifier_reach: NotNegative = added_setting(0.0)
    """Learning rate times steps of the final classifier, instead of a learning rate: the scale of its scores then does
    not grow with the number of rows, so that calibration on smaller splits fits. 0: use `classifier_lr`."""


def train_softmax(
    classifier: nn.Linear, features: Tensor, labels: Tensor, config: SoftmaxRowsConfig, seed: int, lr: float = 0.0
) -> None:
    """Softmax regression, starting from zero; the learning rate is `classifier_lr` by default."""
    nn.init.zeros_(classifier.weight)
    nn.init.zeros_(classifier.bias)
    training = TrainingConfig(
        epochs=config.classifier_epochs,
        batch_size=config.batch_size,
        lr=lr or config.classifier_lr,
        weight_decay=0.0,
        schedule="constant",
    )

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(classifier(rows), targets)

    train(classifier, loss, features, labels, training, seed=seed, hint="lower `classifier_lr`")


class SoftmaxRowsModel(ZeroShotModel):
    """A linear classifier of the classes known at training time, and a source of features for others.

    A row for a new class is trained on demand, with the other rows fixed, to separate generated features of the class
    from those of the known classes. The noise is fixed, so the row depends only on the descriptor. Subclasses say where
    features come from (`synthesize`) and what the classifier sees of them (`scale`, then `transform`).

    Args:
        width: dimensions of what the classifier sees.
        n_known: classes known at training time.
    """

    descriptors: Tensor  # [n_known, d_a], raw
    counts: Tensor  # [n_known], training rows of the classifier per class

    def __init__(self, config: SoftmaxRowsConfig, d_a: int, width: int, n_known: int) -> None:
        super().__init__()
        self.config = config
        self.classifier = nn.Linear(width, n_known)
        self.register_buffer("descriptors", torch.zeros(n_known, d_a))
        self.register_buffer("counts", torch.zeros(n_known))
        self._last: tuple[Tensor, Tensor] | None = None  # descriptors and prototypes of the last call

    @abstractmethod
    def synthesize(self, descriptors: Tensor, n: int, draws: torch.Generator) -> Tensor:
        """[k, d_a], raw → [k, n, d_z], scaled features, with the same noise for every class, without gradients."""

    @abstractmethod
    def scale(self, features: Tensor) -> Tensor:
        """[n, d_z] → [n, d_z], features of the dataset as `synthesize` makes them."""

    def transform(self, features: Tensor) -> Tensor:
        """[…, d_z] → […, width]: what the classifier sees of scaled features, the features themselves by default."""
        return features

    def fit_classifier(self, features: Tensor, labels: Tensor, seen: Tensor, seed: int, draws: torch.Generator) -> None:
        """Train the classifier on real rows of seen classes and on generated rows of unseen ones.

        Args:
            features: [n, d_z], scaled.
            labels: [n], indices into the seen classes.
            seen: [n_known], mask.
            draws: the noise of generated rows.
        """
        unseen = (~seen).nonzero().squeeze(1)
        labels = seen.nonzero().squeeze(1)[labels]
        if len(unseen):
            n = self.config.synthesized
            generated = self.synthesize(self.descriptors[unseen], n, draws).flatten(0, 1)
            features = torch.cat([features, generated])
            labels = torch.cat([labels, unseen.repeat_interleave(n)])
        with torch.no_grad():
            features = self.transform(features)
        self.counts.copy_(labels.bincount(minlength=len(seen)))
        train_softmax(
            self.classifier, features, labels, self.config, seed, lr=self.config.classifier_reach / self._steps
        )

    @property
    def _steps(self) -> int:
        """Steps of the training of the final classifier."""
        return self.config.classifier_epochs * math.ceil(float(self.counts.sum()) / self.config.batch_size)

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return F.linear(self.transform(self.scale(features)), prototypes[:, :-1], prototypes[:, -1])

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, width + 1], weights and bias of each class."""
        last = self._last
        if last and last[0].device == descriptors.device and torch.equal(last[0], descriptors):
            return last[1].clone()
        index = known_classes(descriptors, self.descriptors)
        new = index < 0
        rows = torch.cat([self.classifier.weight, self.classifier.bias[:, None]], dim=1).detach()[index]
        if new.any():
            rows[new] = self._new_rows(descriptors[new])
        self._last = (descriptors.clone(), rows)
        return rows.clone()

    def _new_rows(self, descriptors: Tensor) -> Tensor:
        """[k, d_a] → [k, width + 1]: minimise the loss of the final classifier over the row of one more class.

        With the other rows fixed, this is a logistic regression whose offset is the log-sum-exp of their logits. Class
        weights are those of the final classifier, and the learning rate lets the row move as far as the rows did there.
        """
        config, n_known = self.config, len(self.descriptors)
        n = max(1, min(_CONTRAST_PER_CLASS, _CONTRAST_ROWS // n_known))
        with torch.inference_mode(False), torch.enable_grad():
            with torch.no_grad():
                positives = self._contrast(descriptors.clone(), _CONTRAST_PER_CLASS, seed=0)
                negatives = self._contrast(self.descriptors, n, seed=1).flatten(0, 1)
                positive_offset = self.classifier(positives).logsumexp(dim=2)  # [k, n_positives]
                negative_offset = self.classifier(negatives).logsumexp(dim=1, keepdim=True)  # [n_negatives, 1]
            weights = (self.counts / (n * config.synthesized)).repeat_interleave(n)[:, None]  # [n_negatives, 1]
            weight = positives.new_zeros(len(positives), positives.shape[2], requires_grad=True)
            bias = positives.new_zeros(len(positives), requires_grad=True)
            reach = config.classifier_reach or config.classifier_lr * self._steps
            optimizer = torch.optim.Adam([weight, bias], reach / _NEW_CLASS_STEPS)
            for _ in range(_NEW_CLASS_STEPS):
                hits = torch.einsum("knd,kd->kn", positives, weight) + bias[:, None] - positive_offset
                misses = negatives @ weight.T + bias - negative_offset
                # A sum over the new classes, so that their rows do not depend on each other.
                loss = F.softplus(-hits).mean(dim=1).sum() + (weights * F.softplus(misses)).sum()
                gradient_step(optimizer, loss)
        return torch.cat([weight.detach(), bias.detach()[:, None]], dim=1)

    def _contrast(self, descriptors: Tensor, n: int, seed: int) -> Tensor:
        """[k, d_a] → [k, n, width]: what the classifier sees of generated features."""
        return self.transform(self.synthesize(descriptors, n, torch.Generator().manual_seed(seed)))
