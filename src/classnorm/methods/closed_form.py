"""ESZSL and SAE: linear maps between features and descriptors in closed form, from the same sums over training rows.

ESZSL is a bilinear score between features and descriptors (Romera-Paredes & Torr, ICML 2015). With features as columns
of X, seen descriptors as columns of S and Y in {−1, 1}: V = (X Xᵀ + γ I)⁻¹ X Y Sᵀ (S Sᵀ + λ I)⁻¹. The score of a class
is xᵀ V a.

SAE is a linear autoencoder whose code is the descriptor (Kodirov, Xiang & Gong, CVPR 2017). With the descriptors of the
rows as columns of S, minimise ‖X − Wᵀ S‖² + λ ‖W X − S‖². The minimum solves the Sylvester equation
S Sᵀ W + λ W X Xᵀ = (1 + λ) S Xᵀ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.methods.method import Fitted
from classnorm.methods.model import ExampleSpace, NormalizedModel
from classnorm.methods.rows import TrainingRows
from classnorm.methods.settings.linear import ESZSLConfig, SAEConfig
from classnorm.nn import cosine_logits, dot_logits
from classnorm.training import FitContext

_CHUNK = 4096  # rows converted to float64 at a time


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of the training rows for least squares, in float64 on the CPU."""

    gram: Tensor
    """[d_z, d_z], X Xᵀ"""
    sums: Tensor
    """[n_seen, d_z], feature sums per class"""
    counts: Tensor
    """[n_seen], rows per class"""

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, n_classes: int) -> Self:
        features, labels, d_z = features.cpu(), labels.cpu(), features.shape[1]
        gram = torch.zeros(d_z, d_z, dtype=torch.float64)
        sums = torch.zeros(n_classes, d_z, dtype=torch.float64)
        for block, index in zip(torch.split(features, _CHUNK), torch.split(labels, _CHUNK), strict=True):
            rows = block.double()
            gram.addmm_(rows.T, rows)
            sums.index_add_(0, index, rows)
        return cls(gram, sums, labels.bincount(minlength=n_classes).double())


class ESZSLModel(NormalizedModel):
    """The matrix V between normalized features and descriptors."""

    def __init__(self, config: ESZSLConfig, d_a: int, d_z: int) -> None:
        super().__init__(config, d_a, d_z)
        self.matrix = nn.Parameter(torch.zeros(d_z, d_a), requires_grad=False)

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_z], the classifiers V a."""
        normalized: Tensor = self.attribute_normalization(descriptors)
        return normalized @ self.matrix.T

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return dot_logits(self.feature_normalization(features), prototypes)


def compatibility(moments: Moments, descriptors: Tensor, feature_penalty: float, descriptor_penalty: float) -> Tensor:
    """V, [d_z, d_a] in float64, for descriptors [n_seen, d_a]."""
    table = descriptors.cpu().double()
    signed = 2.0 * moments.sums - moments.sums.sum(dim=0)  # (X Y)ᵀ, [n_seen, d_z]: +1 for the class, −1 for the others
    left = _solve(moments.gram, feature_penalty, signed.T @ table, "feature_penalty")
    return _solve(table.T @ table, descriptor_penalty, left.T, "descriptor_penalty").T


def _solve(gram: Tensor, penalty: float, right: Tensor, name: str) -> Tensor:
    """(gram + penalty · I)⁻¹ right, by Cholesky."""
    factor, failed = torch.linalg.cholesky_ex(gram + penalty * torch.eye(len(gram), dtype=gram.dtype))
    if failed:
        raise ConfigError(f"{name} is {penalty:g}, too small for a matrix of trace {float(gram.trace()):.3g}; raise it")
    return torch.cholesky_solve(right, factor)


def build_eszsl(config: ESZSLConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> ESZSLModel:
    """A model to load weights into."""
    return ESZSLModel(config, d_a, d_z)


def fit_eszsl(dataset: ZeroShotDataset, config: ESZSLConfig, seed: int, context: FitContext) -> Fitted:
    """Solve for V on the CPU; the seed has no effect."""
    rows = TrainingRows.of(dataset, torch.device("cpu"))
    model = ESZSLModel(config, dataset.d_a, dataset.d_z)
    features, descriptors = model.fit_normalization(rows)
    moments = Moments.of(features, rows.labels, len(descriptors))
    with torch.no_grad():
        model.matrix.copy_(compatibility(moments, descriptors, config.feature_penalty, config.descriptor_penalty))
    return Fitted(model.to(context.device).eval(), [])


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


def build_sae(config: SAEConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> SAEModel:
    """A model to load weights into."""
    return SAEModel(config, d_a, d_z)


def fit_sae(dataset: ZeroShotDataset, config: SAEConfig, seed: int, context: FitContext) -> Fitted:
    """Solve for W on the CPU; the seed has no effect."""
    rows = TrainingRows.of(dataset, torch.device("cpu"))
    model = SAEModel(config, dataset.d_a, dataset.d_z)
    features, descriptors = model.fit_normalization(rows)
    moments = Moments.of(features, rows.labels, len(descriptors))
    with torch.no_grad():
        model.encoder.copy_(encoder(moments, descriptors, config.encoder_weight))
    return Fitted(model.to(context.device).eval(), [])
