"""DASCN: two dual games, from descriptors to features and back to descriptors.

Ni, Zhang, Xie: Dual Adversarial Semantics-Consistent Network for Generalized Zero-Shot Learning, NeurIPS 2019. The
primal generator G makes features of noise and descriptors, the dual generator R makes descriptors of features:

    x′ = G(z, a),    a′ = R(x′),    x″ = G(z′, a′).

One critic compares x′ and x″ with real features of the class, another one a′ and R(x) with the descriptor a of
the class, both with a gradient penalty. Besides deceiving them, the generators minimise the classification loss of
f-CLSWGAN and

    σ (‖R(x) − a‖² + ‖R(x′) − a‖²) / d_a + ν ‖mean x′ − mean x‖²

where the means are those of a class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method
from classnorm.methods.space import Choice, Range
from classnorm.settings import Count, NotNegative
from classnorm_lab.rivals.fclswgan import FCLSWGANConfig, FCLSWGANTraining
from classnorm_lab.rivals.lsrgan import class_means
from classnorm_lab.rivals.parts.adversarial import Batch, ScaledRows, build, generative_fit
from classnorm_lab.rivals.parts.generator import Critic, GenerativeModel, SemanticDecoder, critic_loss
from classnorm_lab.rivals.parts.softmax_rows import REACH, rate


@dataclass(frozen=True, kw_only=True)
class DASCNConfig(FCLSWGANConfig):
    """Settings of DASCN. The recipe `reference` sets what differs from the defaults."""

    batch_size: int = 128
    classifier_epochs: int = 12
    epochs: int = 9
    lr: float = 1e-3
    hidden: int = 512
    """Hidden units of the two generators and of the two critics."""
    critic_steps: int = 1
    dual_weight: NotNegative = 0.1
    """Weight of the score of reconstructed descriptors by their critic."""
    semantic_weight: NotNegative = 1.0
    """Weight of the semantic consistency: the squared error of reconstructed descriptors."""
    visual_weight: NotNegative = 10.0
    """Weight of the visual consistency: the squared distance of class means of generated and of real features."""
    mean_rows: Count = 8
    """Generated features per class mean; the classes of a step are as many as make a batch."""


class DASCNTraining(FCLSWGANTraining):
    """Adversarial training of the features and of the descriptors."""

    config: DASCNConfig
    dual: SemanticDecoder
    dual_critic: Critic

    def __init__(self, model: GenerativeModel, rows: ScaledRows, config: DASCNConfig, seed: int) -> None:
        super().__init__(model, rows, config, seed)
        self.means = class_means(rows.features, rows.labels, len(rows.seen))

    def generators(self) -> dict[str, nn.Module]:
        self.dual = SemanticDecoder(self.rows.seen.shape[1], self.rows.features.shape[1], self.config.hidden)
        return {**super().generators(), "dual": self.dual}

    def critics(self) -> dict[str, nn.Module]:
        # It scores descriptors of given features, the other way round.
        self.dual_critic = Critic(self.rows.features.shape[1], self.rows.seen.shape[1], self.config.hidden)
        return {**super().critics(), "dual_critic": self.dual_critic}

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


fit = generative_fit(GenerativeModel, DASCNTraining)


def paper(dataset: ZeroShotDataset) -> DASCNConfig:
    """The published width of the networks, with the schedule of f-CLSWGAN and equal weights; without calibration."""
    return DASCNConfig(
        batch_size=64,
        classifier_epochs=25,
        epochs=50,
        lr=1e-4,
        hidden=4096,
        critic_steps=5,
        dual_weight=1.0,
        visual_weight=1.0,
        classification_weight=0.01,
        attribute_normalization="unit-plain",
        final_relu=dataset.nonnegative,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> DASCNConfig:
    """Narrow networks, large steps and weights selected by validation on CUB."""
    return DASCNConfig(final_relu=dataset.nonnegative, lr=rate(dataset, 1e-3), classifier_reach=REACH)


METHOD = Method(
    config=DASCNConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(5e-5, 2e-3, log=True),
        "epochs": Range(4, 30, log=True, whole=True),
        "hidden": Choice((512, 1024, 2048)),
        "batch_size": Choice((64, 128, 256)),
        "critic_steps": Choice((1, 2, 5)),
        "classification_weight": Range(1e-2, 10.0, log=True),
        "semantic_weight": Range(1e-2, 10.0, log=True),
        "dual_weight": Range(1e-2, 1.0, log=True),
        "visual_weight": Range(0.1, 30.0, log=True),
        "synthesized": Range(50, 600, log=True, whole=True),
    },
    grid={
        "lr": Choice((3e-4, 1e-3)),
        "semantic_weight": Choice((0.1, 1.0)),
        "visual_weight": Choice((1.0, 10.0)),
    },
    sees_unseen=True,
)
