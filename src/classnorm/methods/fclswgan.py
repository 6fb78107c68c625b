"""f-CLSWGAN: a softmax classifier trained on generated features of the unseen classes.

Xian, Lorenz, Schiele, Akata: Feature generating networks for zero-shot learning, CVPR 2018. A generator G and a critic
D, both conditioned on the class descriptor a, play the game (their equations 2, 4 and 5)

    min_G max_D  E[D(x, a)] − E[D(x̃, a)] − λ E[(‖∇_x̂ D(x̂, a)‖ − 1)²] + β L_CLS,    x̃ = G(z, a)

where x̂ lies between a real and a generated feature, and L_CLS is the cross-entropy of generated features under a
classifier pretrained on real ones.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.methods.parts.generation import Batch, Game, GameRows, GenerativeModel, build, generative_fit
from classnorm.methods.parts.softmax_rows import train_softmax
from classnorm.methods.settings.fclswgan import METHOD, FCLSWGANConfig

__all__ = ["METHOD", "ClassifiedGame", "FCLSWGANConfig", "build", "fit"]


class ClassifiedGame(Game):
    """The game with a classification loss, by a softmax classifier of the seen classes trained on real features."""

    config: FCLSWGANConfig

    def __init__(self, model: GenerativeModel, rows: GameRows, config: FCLSWGANConfig, seed: int) -> None:
        super().__init__(model, rows, config, seed)
        self.classifier = nn.Linear(rows.features.shape[1], len(rows.seen)).to(rows.features.device)
        train_softmax(self.classifier, rows.features, rows.labels, config, seed)
        self.classifier.requires_grad_(False)

    def generated_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        adversarial = self.adversarial_loss(fake, batch.descriptors)
        return adversarial + self.config.classification_weight * F.cross_entropy(self.classifier(fake), batch.labels)


fit = generative_fit(GenerativeModel, ClassifiedGame)
