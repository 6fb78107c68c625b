"""DASCN: two dual games, from descriptors to features and back to descriptors.

Ni, Zhang, Xie: Dual Adversarial Semantics-Consistent Network for Generalized Zero-Shot Learning, NeurIPS 2019. The
primal generator G makes features of noise and descriptors, the dual generator R makes descriptors of features:

    x′ = G(z, a),    a′ = R(x′),    x″ = G(z′, a′).

A critic judges x′ and x″ against real features of the class, another one judges a′ and R(x) against the descriptor a of
the class, both with a gradient penalty. Besides deceiving them, the generators minimise the classification loss of
f-CLSWGAN and

    σ (‖R(x) − a‖² + ‖R(x′) − a‖²) / d_a + ν ‖mean x′ − mean x‖²

where the means are those of a class.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.methods.fclswgan import ClassifiedGame
from classnorm.methods.lsrgan import class_means
from classnorm.methods.parts.generation import (
    Batch,
    Critic,
    GameRows,
    GenerativeModel,
    build,
    critic_loss,
    generative_fit,
)
from classnorm.methods.parts.semantic import SemanticDecoder
from classnorm.methods.settings.dascn import METHOD, DASCNConfig

__all__ = ["METHOD", "DASCNConfig", "DualGame", "build", "fit"]


class DualGame(ClassifiedGame):
    """The game of features and the game of descriptors."""

    config: DASCNConfig
    dual: SemanticDecoder
    dual_critic: Critic

    def __init__(self, model: GenerativeModel, rows: GameRows, config: DASCNConfig, seed: int) -> None:
        super().__init__(model, rows, config, seed)
        self.means = class_means(rows.features, rows.labels, len(rows.seen))

    def makers(self) -> dict[str, nn.Module]:
        self.dual = SemanticDecoder(self.rows.seen.shape[1], self.rows.features.shape[1], self.config.hidden)
        return {**super().makers(), "dual": self.dual}

    def judges(self) -> dict[str, nn.Module]:
        # It judges descriptors of given features, the other way round.
        self.dual_critic = Critic(self.rows.features.shape[1], self.rows.seen.shape[1], self.config.hidden)
        return {**super().judges(), "dual_critic": self.dual_critic}

    def cycle(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Generated features [b, d_z], reconstructed descriptors [b, d_a], and the features that these are made of.

        Of the rows of a batch, the first half gives x′ and R(x), the second half x″ and R(x′).
        """
        half = len(batch.real) // 2
        first = self.generate(batch.noise(), batch.descriptors)
        features = torch.cat([batch.real[:half], first[half:]])
        descriptors: Tensor = self.dual(features)
        second = self.generate(batch.noise()[half:], descriptors[half:])
        return torch.cat([first[:half], second]), descriptors, features

    def critic_loss(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            fake, descriptors, features = self.cycle(batch)
        mix, penalty = batch.mix(), self.config.gradient_penalty
        primal = critic_loss(self.critic, batch.real, fake, batch.descriptors, mix, penalty)
        return primal + critic_loss(self.dual_critic, batch.descriptors, descriptors, features, mix, penalty)

    def generator_loss(self, batch: Batch) -> Tensor:
        config = self.config
        fake, descriptors, features = self.cycle(batch)
        dual: Tensor = -self.dual_critic(descriptors, features.detach()).mean()
        semantic = F.mse_loss(descriptors, batch.descriptors)
        consistency = config.semantic_weight * semantic + config.visual_weight * self.visual_loss(batch)
        return self.generated_loss(fake, batch) + config.dual_weight * dual + consistency

    def visual_loss(self, batch: Batch) -> Tensor:
        """Squared distance of class means of generated features from those of real ones, for some classes."""
        classes, means = self.generated_means(self.rows.seen, self.config.mean_rows, batch)
        return (means - self.means[classes]).square().sum(dim=1).mean()


fit = generative_fit(GenerativeModel, DualGame)
