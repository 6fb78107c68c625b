"""SAE: a linear autoencoder whose code is the descriptor (Kodirov, Xiang & Gong, CVPR 2017).

With features as columns of X and their descriptors as columns of S, minimise ‖X − Wᵀ S‖² + λ ‖W X − S‖².
The minimum solves the Sylvester equation S Sᵀ W + λ W X Xᵀ = (1 + λ) S Xᵀ.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.eszsl import Moments
from classnorm.methods.method import Fitted
from classnorm.methods.model import ExampleSpace, NormalizedModel
from classnorm.methods.rows import TrainingRows
from classnorm.methods.settings.linear import SAEConfig
from classnorm.nn import cosine_logits
from classnorm.training import FitContext


class SAEModel(NormalizedModel):
    """The encoder W, whose transpose decodes."""

    def __init__(self, config: SAEConfig, d_a: int, d_z: int) -> None:
        super().__init__(config, d_a, d_z)
        self.score_in = config.score_in
        self.encoder = nn.Parameter(torch.zeros(d_a, d_z), requires_grad=False)

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_z] in feature space, [n_classes, d_a] in descriptor space."""
        normalized: Tensor = self.attribute_normalization(descriptors)
        return normalized @ self.encoder if self.score_in == "feature" else normalized

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return cosine_logits(self._coded(features), prototypes, gamma=1.0)

    def _coded(self, features: Tensor) -> Tensor:
        """[n, d_z] → rows in the space of the prototypes."""
        normalized: Tensor = self.feature_normalization(features)
        return normalized @ self.encoder.T if self.score_in == "descriptor" else normalized

    def example_space(self) -> ExampleSpace:
        return ExampleSpace(lambda features: F.normalize(self._coded(features)))


def encoder(moments: Moments, descriptors: Tensor, encoder_weight: float) -> Tensor:
    """W, [d_a, d_z] in float64, for descriptors [n_seen, d_a].

    In the eigenbases of the two symmetric matrices, the equation is an elementwise division. Where both eigenvalues
    vanish (fewer rows or classes than dimensions), W is undetermined and set to zero.
    """
    table = descriptors.cpu().double()
    codes, P = torch.linalg.eigh(table.T @ (moments.counts[:, None] * table))  # S Sᵀ
    inputs, Q = torch.linalg.eigh(moments.gram)  # X Xᵀ
    right = (1.0 + encoder_weight) * (P.T @ (table.T @ moments.sums) @ Q)
    divisor = codes[:, None] + encoder_weight * inputs[None, :]
    floor = torch.finfo(torch.float64).eps * max(right.shape) * divisor.max()
    solution: Tensor = P @ torch.where(divisor > floor, right / divisor.clamp(min=floor), 0.0) @ Q.T
    return solution


def build(config: SAEConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> SAEModel:
    """A model to load weights into."""
    return SAEModel(config, d_a, d_z)


def fit(dataset: ZeroShotDataset, config: SAEConfig, seed: int, context: FitContext) -> Fitted:
    """Solve for W on the CPU; the seed has no effect."""
    rows = TrainingRows.of(dataset, torch.device("cpu"))
    model = SAEModel(config, dataset.d_a, dataset.d_z)
    features, descriptors = model.fit_normalization(rows)
    moments = Moments.of(features, rows.labels, len(descriptors))
    with torch.no_grad():
        model.encoder.copy_(encoder(moments, descriptors, config.encoder_weight))
    return Fitted(model.to(context.device).eval(), [])
