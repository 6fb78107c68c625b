"""SynC: classifiers synthesized from those of phantom classes (Changpinyo, Chao, Gong & Sha, CVPR 2016).

Phantom class r has a coordinate b_r among the descriptors and a classifier v_r among the features. The classifier of a
real class is w_c = Σ_r s_cr v_r, with s_cr ∝ exp(−‖a_c − b_r‖² / σ²) and Σ_r s_cr = 1
(a Gaussian similarity). Here b_r are the seen descriptors, one phantom class each, and the v_r are learnt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import Fitted, Method, MethodConfig, TrainingRows, ZeroShotModel
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeNormalization, AttributeNormalizationKind, dot_logits
from classnorm.training import FitContext, Schedule, TrainingConfig, train

__all__ = ["METHOD", "SynCConfig", "SynCModel", "one_versus_other", "phantom_classifiers", "structured"]

_RANK = 1e-6  # alignments are known to float32


@dataclass(frozen=True, kw_only=True)
class SynCConfig(MethodConfig, TrainingConfig):
    """The width of the similarity, the loss, and how it is trained."""

    sigma: float = 1.5
    """σ, how far a class looks for similar phantom classes; 1 is the root mean square distance of two seen classes."""
    loss: Literal["one-versus-other", "crammer-singer", "structured"] = "one-versus-other"
    """Squared hinge of each class against the others, or of the worst wrong class with a margin of 1
    (`crammer-singer`) or of its squared distance in descriptors (`structured`)."""
    penalty: float = 1e-3
    """λ, the weight of Σ_c ‖w_c‖² / 2."""
    feature_normalization: AttributeNormalizationKind = "unit-plain"
    """Features: `unit` norm times √d_z, `unit-plain` without the factor, `standardize`, or `none`."""
    attribute_normalization: AttributeNormalizationKind = "unit-plain"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""
    epochs: int = 30
    """Passes over the training rows; the model of the last one is the result."""
    lr: float = 0.1
    """Learning rate; large because the classifiers of features of unit norm are."""
    weight_decay: float = 0.0
    """L2 penalty of the optimizer, in addition to `penalty`."""
    schedule: Schedule = "cosine"
    """How the learning rate falls: not at all, once by `lr_drop`, again and again by it, or along a cosine to 0."""

    def check(self) -> None:
        MethodConfig.check(self)
        TrainingConfig.check(self)
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise ConfigError(f"sigma is {self.sigma}; it must be positive")
        if not (math.isfinite(self.penalty) and self.penalty >= 0):
            raise ConfigError(f"penalty is {self.penalty}; it must be at least 0")


class SynCModel(ZeroShotModel):
    """Phantom classes: their coordinates and their classifiers."""

    phantoms: Tensor
    spread: Tensor

    def __init__(self, config: SynCConfig, d_a: int, d_z: int, n_phantoms: int) -> None:
        super().__init__()
        self.sigma = config.sigma
        self.feature_normalization = AttributeNormalization(d_z, config.feature_normalization)
        self.attribute_normalization = AttributeNormalization(d_a, config.attribute_normalization)
        self.bases = nn.Parameter(torch.zeros(n_phantoms, d_z))
        self.register_buffer("phantoms", torch.zeros(n_phantoms, d_a))
        self.register_buffer("spread", torch.ones(()))

    @torch.no_grad()
    def place(self, descriptors: Tensor) -> None:
        """Put the phantom classes where the seen ones are, [n_seen, d_a]; σ is measured by how far these lie apart."""
        self.attribute_normalization.fit(descriptors)
        self.phantoms.copy_(self.attribute_normalization(descriptors))
        n = len(descriptors)
        mean_square = self.distances(descriptors).sum() / (n * (n - 1))
        self.spread.copy_(torch.where(mean_square > 0, mean_square, 1.0))

    def distances(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, n_phantoms], squared and in units of the mean between seen classes."""
        normalized = self.attribute_normalization(descriptors)
        exact = "donot_use_mm_for_euclid_dist"  # products round away the distance of near classes
        return torch.cdist(normalized, self.phantoms, compute_mode=exact).square() / self.spread

    def alignment(self, descriptors: Tensor) -> Tensor:
        """The weights s_cr, [n_classes, d_a] → [n_classes, n_phantoms]."""
        return (-self.distances(descriptors) / self.sigma**2).softmax(dim=1)

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_z], the classifiers w_c."""
        return self.alignment(descriptors) @ self.bases

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return dot_logits(self.feature_normalization(features), prototypes)


def one_versus_other(scores: Tensor, labels: Tensor) -> Tensor:
    """Squared hinge of every class, 1 for the own and −1 for the others; summed over classes, mean over rows.

    >>> one_versus_other(torch.tensor([[2.0, -0.5]]), torch.tensor([0]))
    tensor(0.2500)
    """
    signs = 2.0 * F.one_hot(labels, scores.shape[1]) - 1.0
    return (1.0 - signs * scores).relu().square().sum(dim=1).mean()


def structured(scores: Tensor, labels: Tensor, margins: Tensor) -> Tensor:
    """Squared hinge of the wrong class that violates its margin most; `margins` [n_classes, n_classes], zero on the
    diagonal. Mean over rows.

    >>> structured(torch.tensor([[2.0, 1.5]]), torch.tensor([0]), 1.0 - torch.eye(2))
    tensor(0.2500)
    """
    own = scores.gather(1, labels[:, None])
    return (margins[labels] + scores - own).amax(dim=1).square().mean()  # the own class has 0, so no violation is below


def build(config: SynCConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> SynCModel:
    """A model to load weights into; they know the number of phantom classes."""
    return SynCModel(config, d_a, d_z, len(weights["phantoms"]))


def fit(dataset: ZeroShotDataset, config: SynCConfig, seed: int, context: FitContext) -> Fitted:
    """Learn the classifiers of the phantom classes.

    Loss and penalty are functions of the w_c of the seen classes alone, and with one phantom class for each of these
    W = S V has a square S. So W is trained, a convex problem that starts from zero, and V solved for; the same minimum
    as training V, without the poor condition that a wide σ gives S.
    """
    config.check()
    rows = TrainingRows.of(dataset, context.device)
    n_seen = len(rows.descriptors)
    model = SynCModel(config, dataset.d_a, dataset.d_z, n_seen).to(context.device)
    model.feature_normalization.fit(rows.features)
    model.place(rows.descriptors)
    equal = 1.0 - torch.eye(n_seen, device=context.device)
    margins = equal if config.loss == "crammer-singer" else equal * model.distances(rows.descriptors)
    trained = nn.ParameterList([torch.zeros(n_seen, dataset.d_z, device=context.device)])

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        classifiers: Tensor = trained[0]
        scores = dot_logits(features, classifiers)
        one_by_one = config.loss == "one-versus-other"
        value = one_versus_other(scores, labels) if one_by_one else structured(scores, labels, margins)
        return value + 0.5 * config.penalty * classifiers.square().sum()

    history = train(
        trained,
        loss,
        model.feature_normalization(rows.features),
        rows.labels,
        config,
        seed=seed,
        context=context,
    )
    with torch.no_grad():
        model.bases.copy_(phantom_classifiers(model.alignment(rows.descriptors), trained[0]))
    return Fitted(model.eval(), history)


def phantom_classifiers(alignment: Tensor, classifiers: Tensor) -> Tensor:
    """V of S V = W, in float64 on the CPU: [n_seen, n_seen], [n_seen, d_z] → [n_seen, d_z].

    Seen classes with equal descriptors make S singular; the pseudo-inverse gives them the mean of their classifiers.
    """
    inverse: Tensor = torch.linalg.pinv(alignment.cpu().double(), rtol=_RANK)
    return inverse @ classifiers.detach().cpu().double()


def paper(dataset: ZeroShotDataset) -> SynCConfig:
    """Its loss of each class against the others, features and descriptors of unit norm. The publication picks σ and λ
    for each dataset by validation, as `classnorm search` does; here they are those of `reference`."""
    return SynCConfig()


def reference(dataset: ZeroShotDataset) -> SynCConfig:
    """The defaults; σ = 1.5 and λ = 10⁻³ were found on validation splits of CUB."""
    return SynCConfig()


RECIPES: dict[str, Callable[[ZeroShotDataset], MethodConfig]] = {"paper": paper, "reference": reference}
SPACE: Space = {"sigma": Range(0.5, 4.0, log=True), "penalty": Range(3e-5, 3e-3, log=True)}
GRID: Space = {"sigma": Choice((0.5, 1.0, 2.0)), "penalty": Choice((1e-4, 3e-4, 1e-3))}
METHOD = Method(config=SynCConfig, recipes=RECIPES, build=build, fit=fit, space=SPACE, grid=GRID)
