"""ConSE: a convex combination of the descriptors of the likeliest seen classes (Norouzi et al., ICLR 2014).

A softmax classifier gives p(c | x) over the seen classes. With ĉ(x, t) the t-th likeliest of them,
f(x) = 1/Z Σ_{t ≤ T} p(ĉ(x, t) | x) a_ĉ(x, t), where Z is the sum of those probabilities. The score of any
class, seen or unseen, is the cosine of f(x) and its descriptor.
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
from classnorm.methods.settings.linear import ConSEConfig
from classnorm.nn import cosine_logits
from classnorm.training import FitContext, train


class ConSEModel(NormalizedModel):
    """A linear classifier of the seen classes, and their descriptors."""

    seen_descriptors: Tensor

    def __init__(self, config: ConSEConfig, d_a: int, d_z: int, n_seen: int) -> None:
        super().__init__(config, d_a, d_z)
        self.top = config.top
        self.weight = nn.Parameter(torch.zeros(n_seen, d_z))
        self.bias = nn.Parameter(torch.zeros(n_seen))
        self.register_buffer("seen_descriptors", torch.zeros(n_seen, d_a))

    def class_logits(self, normalized: Tensor) -> Tensor:
        """Logits of the softmax classifier: normalized features [n, d_z] → [n, n_seen]."""
        return F.linear(normalized, self.weight, self.bias)

    def embed(self, features: Tensor) -> Tensor:
        """[n, d_z] → [n, d_a], the convex combinations f(x) of normalized seen descriptors."""
        probabilities = self.class_logits(self.feature_normalization(features)).softmax(dim=1)
        descriptors: Tensor = self.attribute_normalization(self.seen_descriptors)
        return convex_weights(probabilities, self.top) @ descriptors

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_a]."""
        result: Tensor = self.attribute_normalization(descriptors)
        return result

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return cosine_logits(self.embed(features), prototypes, gamma=1.0)


def convex_weights(probabilities: Tensor, top: int) -> Tensor:
    """[n, n_seen] → [n, n_seen]: the `top` largest of each row, divided by their sum; zero elsewhere.

    >>> convex_weights(torch.tensor([[0.5, 0.125, 0.375]]), top=2).round(decimals=3)
    tensor([[0.5710, 0.0000, 0.4290]])
    """
    values, classes = probabilities.topk(min(top, probabilities.shape[1]), dim=1)
    return torch.zeros_like(probabilities).scatter(1, classes, values / values.sum(dim=1, keepdim=True))


def build(config: ConSEConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> ConSEModel:
    """A model to load weights into."""
    return ConSEModel(config, d_a, d_z, len(weights["weight"]))


def fit(dataset: ZeroShotDataset, config: ConSEConfig, seed: int, context: FitContext) -> Fitted:
    """Train the classifier with cross-entropy, from zero, as the problem is convex."""
    rows = TrainingRows.of(dataset, context.device)
    model = ConSEModel(config, dataset.d_a, dataset.d_z, len(rows.descriptors)).to(context.device)
    features, _ = model.fit_normalization(rows)
    model.seen_descriptors.copy_(rows.descriptors)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model.class_logits(features), labels)

    return Fitted(model, train(model, loss, features, rows.labels, config, seed=seed, context=context))
