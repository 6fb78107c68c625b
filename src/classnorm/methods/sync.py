"""SynC: classifiers synthesized from those of phantom classes (Changpinyo, Chao, Gong & Sha, CVPR 2016).

Phantom class r has a coordinate b_r in descriptor space and a classifier v_r in feature space. The classifier of a real
class is w_c = Σ_r s_cr v_r, with the Gaussian similarity s_cr ∝ exp(−‖a_c − b_r‖² / σ²), Σ_r s_cr = 1. Here the b_r are
the seen descriptors, one phantom class each, and the v_r are learnt.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Fitted
from classnorm.methods.model import NormalizedModel
from classnorm.methods.rows import TrainingRows
from classnorm.methods.settings.linear import SynCConfig
from classnorm.nn import dot_logits
from classnorm.training import FitContext, train

_RANK = 1e-6  # relative tolerance: alignments have float32 precision


class SynCModel(NormalizedModel):
    """Coordinates and classifiers of the phantom classes."""

    phantoms: Tensor
    spread: Tensor

    def __init__(self, config: SynCConfig, d_a: int, d_z: int, n_phantoms: int) -> None:
        super().__init__(config, d_a, d_z)
        self.sigma = config.sigma
        self.bases = nn.Parameter(torch.zeros(n_phantoms, d_z))
        self.register_buffer("phantoms", torch.zeros(n_phantoms, d_a))
        self.register_buffer("spread", torch.ones(()))

    @torch.no_grad()
    def place(self, descriptors: Tensor) -> None:
        """Place the phantom classes at the seen descriptors [n_seen, d_a], and scale σ to their distances."""
        self.attribute_normalization.fit(descriptors)
        self.phantoms.copy_(self.attribute_normalization(descriptors))
        n = len(descriptors)
        mean_square = self.distances(descriptors).sum() / (n * (n - 1))
        self.spread.copy_(torch.where(mean_square > 0, mean_square, 1.0))

    def distances(self, descriptors: Tensor) -> Tensor:
        """Squared distances over their mean between seen classes: [n_classes, d_a] → [n_classes, n_phantoms]."""
        normalized = self.attribute_normalization(descriptors)
        exact = "donot_use_mm_for_euclid_dist"  # matrix products round away small distances
        return torch.cdist(normalized, self.phantoms, compute_mode=exact).square() / self.spread

    def alignment(self, descriptors: Tensor) -> Tensor:
        """The weights s_cr: [n_classes, d_a] → [n_classes, n_phantoms]."""
        return (-self.distances(descriptors) / self.sigma**2).softmax(dim=1)

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_z], the classifiers w_c."""
        return self.alignment(descriptors) @ self.bases

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return dot_logits(self.feature_normalization(features), prototypes)


def one_versus_other(scores: Tensor, labels: Tensor) -> Tensor:
    """Squared hinge of every class with targets ±1, summed over classes, mean over rows.

    >>> one_versus_other(torch.tensor([[2.0, -0.5]]), torch.tensor([0]))
    tensor(0.2500)
    """
    signs = 2.0 * F.one_hot(labels, scores.shape[1]) - 1.0
    return (1.0 - signs * scores).relu().square().sum(dim=1).mean()


def structured(scores: Tensor, labels: Tensor, margins: Tensor) -> Tensor:
    """Squared hinge of the worst margin violation, mean over rows; `margins` is [n_classes, n_classes], zero on the
    diagonal.

    >>> structured(torch.tensor([[2.0, 1.5]]), torch.tensor([0]), 1.0 - torch.eye(2))
    tensor(0.2500)
    """
    correct = scores.gather(1, labels[:, None])
    return (margins[labels] + scores - correct).amax(dim=1).square().mean()  # at least 0, from the correct class


def build(config: SynCConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> SynCModel:
    """A model to load weights into."""
    return SynCModel(config, d_a, d_z, len(weights["phantoms"]))


def fit(dataset: ZeroShotDataset, config: SynCConfig, seed: int, context: FitContext) -> Fitted:
    """Learn the classifiers of the phantom classes.

    Loss and penalty depend only on the w_c of the seen classes, and with one phantom class for each, S in W = S V is
    square. So W is trained, a convex problem starting from zero, and V is solved for. The minimum is the same as when
    training V, without the ill-conditioning of S for large σ.
    """
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
        independent = config.loss == "one-versus-other"
        value = one_versus_other(scores, labels) if independent else structured(scores, labels, margins)
        return value + 0.5 * config.penalty * classifiers.square().sum()

    features = model.feature_normalization(rows.features)
    history = train(trained, loss, features, rows.labels, config, seed=seed, context=context)
    with torch.no_grad():
        model.bases.copy_(phantom_classifiers(model.alignment(rows.descriptors), trained[0]))
    return Fitted(model.eval(), history)


def phantom_classifiers(alignment: Tensor, classifiers: Tensor) -> Tensor:
    """V of S V = W, in float64 on the CPU: [n_seen, n_seen], [n_seen, d_z] → [n_seen, d_z].

    If seen classes have equal descriptors, S is singular; the pseudo-inverse gives them their mean classifier.
    """
    inverse: Tensor = torch.linalg.pinv(alignment.cpu().double(), rtol=_RANK)
    return inverse @ classifiers.detach().cpu().double()
