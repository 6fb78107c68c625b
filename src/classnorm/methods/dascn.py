"""DASCN: two dual games, from descriptors to features and back to descriptors.

Ni, Zhang, Xie: Dual Adversarial Semantics-Consistent Network for Generalized Zero-Shot Learning, NeurIPS 2019. The
primal generator G makes features of noise and descriptors, the dual generator R makes descriptors of features:

    x′ = G(z, a),    a′ = R(x′),    x″ = G(z′, a′).

A critic judges x′ and x″ against real features of the class, another one judges a′ and R(x) against the descriptor a of
the class, both with a gradient penalty. Besides deceiving them, the generators minimise the classification loss of
f-CLSWGAN and

    σ (‖R(x) − a‖² + ‖R(x′) − a‖²) + ν ‖mean x′ − mean x‖²

per dimension, where the means are those of each class.
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
        _, self.means = class_means(rows.features, rows.labels)  # [n_seen, d_z]

    def makers(self) -> dict[str, nn.Module]:
        self.dual = SemanticDecoder(self.rows.seen.shape[1], self.rows.features.shape[1], self.config.hidden)
        return {**super().makers(), "dual": self.dual}

    def judges(self) -> dict[str, nn.Module]:
        # It judges descriptors of given features, the other way round.
        self.dual_critic = Critic(self.rows.features.shape[1], self.rows.seen.shape[1], self.config.hidden)
        return {**super().judges(), "dual_critic": self.dual_critic}

    def cycle(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Generated features [b, d_z], descriptors [b, d_a] reconstructed of them, and features generated of these."""
        first = self.generate(batch.noise(), batch.descriptors)
        descriptors: Tensor = self.dual(first)
        return first, descriptors, self.generate(batch.noise(), descriptors)

    def critic_loss(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            first, from_first, second = self.cycle(batch)
            from_real = self.dual(batch.real)
        twice, penalty = batch.descriptors.repeat(2, 1), self.config.gradient_penalty
        mix = torch.cat([batch.mix(), batch.mix()])
        primal = critic_loss(self.critic, batch.real.repeat(2, 1), torch.cat([first, second]), twice, mix, penalty)
        features, fake = torch.cat([batch.real, first]), torch.cat([from_real, from_first])
        return primal + critic_loss(self.dual_critic, twice, fake, features, mix, penalty)

    def generator_loss(self, batch: Batch) -> Tensor:
        first, from_first, second = self.cycle(batch)
        descriptors = torch.cat([self.dual(batch.real), from_first])
        primal = 0.5 * (self.generated_loss(first, batch) + self.generated_loss(second, batch))
        dual = -self.dual_critic(descriptors, torch.cat([batch.real, first.detach()])).mean()
        semantic = F.mse_loss(descriptors, batch.descriptors.repeat(2, 1))
        config = self.config
        visual = self.visual_loss(first, batch.labels)
        return primal + config.dual_weight * dual + config.semantic_weight * semantic + config.visual_weight * visual

    def visual_loss(self, fake: Tensor, labels: Tensor) -> Tensor:
        """Squared distance of the class means of generated features from those of real ones, over the classes given."""
        classes, means = class_means(fake, labels)
        return (means - self.means[classes]).square().sum(dim=1).mean()


fit = generative_fit(GenerativeModel, DualGame)
