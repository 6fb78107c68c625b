"""f-CLSWGAN: a softmax classifier trained on generated features of the unseen classes.

Xian, Lorenz, Schiele, Akata: Feature generating networks for zero-shot learning, CVPR 2018. A generator G and a critic
D, both conditioned on the class descriptor a, solve (their equations 2, 4 and 5)

    min_G max_D  E[D(x, a)] − E[D(x̃, a)] − λ E[(‖∇_x̂ D(x̂, a)‖ − 1)²] + β L_CLS,    x̃ = G(z, a)

where x̂ lies between a real and a generated feature, and L_CLS is the cross-entropy of generated features under a
classifier pretrained on real ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method
from classnorm.methods.space import Choice, Range
from classnorm.settings import NotNegative
from classnorm_lab.rivals.parts.adversarial import AdversarialTraining, Batch, ScaledRows, build, generative_fit
from classnorm_lab.rivals.parts.generator import GenerativeConfig, GenerativeModel
from classnorm_lab.rivals.parts.softmax_rows import REACH, train_softmax


@dataclass(frozen=True, kw_only=True)
class FCLSWGANConfig(GenerativeConfig):
    """Settings of f-CLSWGAN. The recipe `reference` sets what differs from the defaults."""

    classification_weight: NotNegative = 1.0
    """Weight β of the classification loss of generated features."""


class FCLSWGANTraining(AdversarialTraining):
    """Adversarial training with the loss of a softmax classifier of the seen classes, trained on real features."""

    config: FCLSWGANConfig

    def __init__(self, model: GenerativeModel, rows: ScaledRows, config: FCLSWGANConfig, seed: int) -> None:
        super().__init__(model, rows, config, seed)
        self.classifier = nn.Linear(rows.features.shape[1], len(rows.seen)).to(rows.features.device)
        train_softmax(self.classifier, rows.features, rows.labels, config, seed)
        self.classifier.requires_grad_(False)

    def generated_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        adversarial = self.adversarial_loss(fake, batch.descriptors)
        return adversarial + self.config.classification_weight * F.cross_entropy(self.classifier(fake), batch.labels)


fit = generative_fit(GenerativeModel, FCLSWGANTraining)


# Epochs of public generalized runs; we know of none in the publication.
_PAPER: dict[str, int] = {"CUB": 56, "SUN": 40, "AWA1": 30, "AWA2": 30}


def paper(dataset: ZeroShotDataset) -> FCLSWGANConfig:
    """The published networks and optimizer, without calibration."""
    return FCLSWGANConfig(
        epochs=_PAPER.get(dataset.benchmark or "", 30),
        lr=1e-4,
        hidden=4096,
        classification_weight=0.01,
        attribute_normalization="unit-plain",
        final_relu=dataset.nonnegative,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> FCLSWGANConfig:
    """Narrower networks, larger steps and a stronger classification loss, selected by validation on CUB. It takes
    a fraction of the epochs, in which the published settings come nowhere near convergence."""
    return FCLSWGANConfig(
        final_relu=dataset.nonnegative, classifier_lr=2e-3, classifier_epochs=12, classifier_reach=REACH
    )


METHOD = Method(
    config=FCLSWGANConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(5e-5, 2e-3, log=True),
        "epochs": Range(2, 20, log=True, whole=True),
        "hidden": Choice((512, 1024, 2048)),
        "batch_size": Choice((64, 128, 256)),
        "classification_weight": Range(1e-2, 10.0, log=True),
        "synthesized": Range(50, 600, log=True, whole=True),
    },
    grid={
        "lr": Choice((1e-4, 3e-4)),
        "classification_weight": Choice((0.01, 0.1, 1.0)),
        "synthesized": Choice((100, 300)),
    },
    sees_unseen=True,
)
