"""CIZSL: f-CLSWGAN whose features of hallucinated classes are realistic, yet like no seen class.

Elhoseiny, Elfeki: Creativity Inspired Zero-Shot Learning, ICCV 2019. A hallucinated descriptor a_h = α a_i +
(1 − α) a_j lies between those of two seen classes, α ∈ [0.2, 0.8]. The generator's loss of f-CLSWGAN gets the terms

    −ρ E[D(G(z, a_h), a_h)] + λ E[SM(p(· | G(z, a_h)) ‖ u)]

with the critic D, the posterior p of the classifier of seen classes, the uniform distribution u over them, and the
Sharma–Mittal divergence, whose two parameters are learnt:

    SM(p ‖ u) = ((Σ_c p_c^γ u_c^(1−γ))^((1−β)/(1−γ)) − 1) / (β − 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method
from classnorm.methods.space import Choice, Range
from classnorm.settings import NotNegative
from classnorm_lab.rivals.fclswgan import FCLSWGANConfig, FCLSWGANTraining
from classnorm_lab.rivals.fclswgan import paper as fclswgan_paper
from classnorm_lab.rivals.parts.adversarial import Batch, build, generative_fit
from classnorm_lab.rivals.parts.generator import GenerativeModel
from classnorm_lab.rivals.parts.softmax_rows import REACH


@dataclass(frozen=True, kw_only=True)
class CIZSLConfig(FCLSWGANConfig):
    """Settings of CIZSL. The recipe `reference` sets what differs from the defaults."""

    hidden: int = 512
    classifier_lr: float = 2e-3
    classifier_epochs: int = 12
    creativity_weight: NotNegative = 0.1
    """Weight of the divergence between the posterior of hallucinated classes and the uniform distribution."""
    realism_weight: NotNegative = 0.1
    """Weight of the critic's score of hallucinated classes."""


_LEAST, _MOST = 0.2, 0.8  # shares of a class in a hallucinated one, and parameters of the divergence


def sharma_mittal(logits: Tensor, gamma: Tensor | float, beta: Tensor | float) -> Tensor:
    """The divergence of softmax probabilities from the uniform distribution: [b, n_classes] → [b].

    >>> logits = torch.tensor([[3.0, 3.0], [0.0, 50.0]])  # uniform; all on one class
    >>> torch.allclose(sharma_mittal(logits, 0.5, 0.5), torch.tensor([0.0, 2 - 2**0.5]), atol=1e-6)
    True
    """
    n_classes = torch.tensor(float(logits.shape[1]), device=logits.device)
    # Sums of powers in logarithms: the powers of tiny probabilities have no finite slope.
    power_sum = (gamma * logits.log_softmax(dim=1)).logsumexp(dim=1) - (1 - gamma) * n_classes.log()
    return torch.expm1((1 - beta) / (1 - gamma) * power_sum) / (beta - 1)


class SharmaMittal(nn.Module):
    """The divergence, averaged over rows, with learnt parameters γ and β in (0.2, 0.8)."""

    def __init__(self) -> None:
        super().__init__()
        self.parameter = nn.Parameter(torch.zeros(2))

    def forward(self, logits: Tensor) -> Tensor:
        gamma, beta = _LEAST + (_MOST - _LEAST) * self.parameter.sigmoid()
        return sharma_mittal(logits, gamma, beta).mean()


def hallucinate(descriptors: Tensor, draws: torch.Generator) -> Tensor:
    """Mix each descriptor with that of another row, and give the mixture the length between theirs: [b, d_a]."""
    others = descriptors[torch.randperm(len(descriptors), generator=draws).to(descriptors.device)]
    share = _LEAST + (_MOST - _LEAST) * torch.rand(len(descriptors), 1, generator=draws).to(descriptors.device)
    mixed = torch.lerp(others, descriptors, share)
    length = torch.lerp(others.norm(dim=1, keepdim=True), descriptors.norm(dim=1, keepdim=True), share)
    return F.normalize(mixed, dim=1) * length


class CIZSLTraining(FCLSWGANTraining):
    """The training of f-CLSWGAN with hallucinated classes."""

    config: CIZSLConfig

    def generators(self) -> dict[str, nn.Module]:
        self.divergence = SharmaMittal()
        return super().generators() | {"divergence": self.divergence}

    def generated_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        descriptors = hallucinate(batch.descriptors, batch.draws)
        imagined = self.model.generate(batch.noise(), descriptors)
        realism = self.config.realism_weight * self.adversarial_loss(imagined, descriptors)
        creativity = self.config.creativity_weight * self.divergence(self.classifier(imagined))
        loss: Tensor = super().generated_loss(fake, batch) + realism + creativity
        return loss


fit = generative_fit(GenerativeModel, CIZSLTraining)


def paper(dataset: ZeroShotDataset) -> CIZSLConfig:
    """The networks and schedule of f-CLSWGAN, with the weights of the authors' code; no calibration."""
    return CIZSLConfig(**fclswgan_paper(dataset).as_dict(), creativity_weight=0.1, realism_weight=1.0)


def reference(dataset: ZeroShotDataset) -> CIZSLConfig:
    """A short schedule and weights selected by validation on CUB."""
    return CIZSLConfig(final_relu=dataset.nonnegative, classifier_reach=REACH)


METHOD = Method(
    config=CIZSLConfig,
    recipes={"paper": paper, "reference": reference},
    build=build,
    fit=fit,
    space={
        "lr": Range(5e-5, 2e-3, log=True),
        "epochs": Range(2, 20, log=True, whole=True),
        "classification_weight": Range(1e-2, 10.0, log=True),
        "creativity_weight": Range(1e-4, 10.0, log=True),
        "synthesized": Range(50, 600, log=True, whole=True),
    },
    grid={
        "creativity_weight": Choice((1e-4, 0.1, 1.0)),
        "realism_weight": Choice((0.1, 1.0)),
    },
    sees_unseen=True,
)
