"""Kernel prototypes: ridge regression from descriptors to class means in a well-conditioned feature space.

1. Features are mapped by a power, centring, partial whitening and scaling to unit length (`nn.FeatureGeometry`). The
   covariance has the variation within classes and the errors of the regression for classes left out: both are noise
   around the prototype of an unseen class.
2. Descriptors are raised to a power, centred, divided by a power of their standard deviation and scaled to unit
   length. A Gaussian kernel compares them, with twice the median squared distance between seen classes as bandwidth.
   Parts of descriptors, like attributes and text, have a kernel each; their weights are those that predict the mean of
   a class best from the other classes.
3. Ridge regression in the kernel's feature space gives the prototype of any class in closed form.
4. A few epochs of softmax refine the coefficients and a linear map of the features; more overfit to the seen classes.
   For the same reason the coefficients are averaged with those of the closed form.
5. Hubs are penalised, as a class close to many others would attract their images. Prototypes are divided by slightly
   more than their length (regression shrinks those it knows least about), and a share of the mean cosine with the
   nearest class means is subtracted from the scores of each class.

What makes it quick: products and eigenvectors in float32 where that is accurate (`nn.geometry`), products once for all
fits of a job (`row_moments`), and a refinement whose gradient is in closed form.

The kernel's features are the coordinates in its eigenbasis over landmarks (all seen classes, or a sample: Nyström), so
that every direction is well scaled for the optimizer.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.methods.descriptor_kernel import DescriptorKernel, block_weights, left_out_errors, ridge
from classnorm.methods.method import Fitted
from classnorm.methods.model import ExampleSpace, ProductModel
from classnorm.methods.rows import ClassSampler, TrainingRows, row_moments, transformed_rows
from classnorm.methods.settings.kernel import KernelConfig
from classnorm.nn import FeatureMoments, with_hubness
from classnorm.training import FitContext, train


class KernelModel(ProductModel):
    """Geometry, kernel, the coefficients between them, and a linear map of the features, initially the identity."""

    means: Tensor
    shortest: Tensor

    def __init__(self, config: KernelConfig, d_z: int, kernel: DescriptorKernel, n_seen: int) -> None:
        super().__init__()
        self.geometry = config.build_geometry(d_z)
        self.kernel = kernel
        k = self.geometry.projection.shape[1]
        self.coefficients = nn.Parameter(torch.zeros(kernel.basis.shape[1], k))
        self.map = nn.Parameter(torch.zeros(k, k))
        self.register_buffer("means", torch.zeros(n_seen, k))  # of the seen classes, after the geometry
        self.register_buffer("shortest", torch.tensor(shortest_length(n_seen)))
        self.map_rate = 0.0 if config.closed_form else config.map_rate
        self.scale = config.scale
        self.length, self.hubness = config.length, config.hubness
        self.ridge = config.ridge

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, k + 1]; the last column is the hubness penalty."""
        raw = self.kernel(descriptors) @ self.coefficients
        length = torch.maximum(raw.norm(dim=1, keepdim=True), self.shortest)
        return with_hubness(raw / length**self.length, self.mapped(self.means), self.hubness)

    def row_vectors(self, features: Tensor) -> Tensor:
        transformed = self.mapped(self.geometry(features))
        return self.scale * F.pad(transformed, (0, 1), value=1.0)  # the last column meets the hubness penalty

    def class_vectors(self, prototypes: Tensor) -> Tensor:
        return prototypes

    def example_space(self) -> ExampleSpace:
        means = functools.cache(lambda: self.mapped(self.means))  # once for all prototypes that this space makes
        return ExampleSpace(
            lambda features: self.mapped(self.geometry(features)),
            lambda prototypes: prototypes[:, :-1],
            lambda centers: with_hubness(centers, means(), self.hubness),
            variance=self.variance,
        )

    def variance(self, descriptors: Tensor) -> Tensor:
        """The posterior variance of the prototypes [n_classes] as values of a Gaussian process with variance 1, whose
        mean is the ridge regression: k(a, a) − |φ|² + λ φ (ΦᵀΦ + λI)⁻¹ φᵀ, in float64."""
        features = self.kernel(descriptors).double()
        landmarks = (self.kernel._gram(self.kernel.landmarks) @ self.kernel.basis).double()
        gram = len(self.means) / len(landmarks) * landmarks.T @ landmarks  # estimates ΦᵀΦ if landmarks are a sample
        gram += self.ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        explained = (features * torch.linalg.solve(gram, features.T).T).sum(dim=1)
        variance: Tensor = (1.0 - features.square().sum(dim=1)).clamp(min=0.0) + self.ridge * explained
        return variance

    def choices(self) -> dict[str, Any]:
        weights = self.kernel.weights
        return {} if weights is None else {"block_weights": [round(weight, 4) for weight in weights.tolist()]}

    def class_weights(self, descriptors: Tensor, seen: Tensor) -> Tensor | None:
        """The closed form's prototype is a sum of class means, φ(a) (ΦᵀΦ + λI)⁻¹ Φᵀ M: the factors of the means."""
        if len(seen) != len(self.means):  # not all training classes are known
            return None
        factors = ridge(self.kernel(seen).cpu(), torch.eye(len(seen)), self.ridge)
        weights: Tensor = self.kernel(descriptors) @ factors.to(descriptors.device)
        return weights

    def mapped(self, transformed: Tensor) -> Tensor:
        """The linear map of transformed features, scaled back to unit length. Adam takes equal steps in every weight;
        the factor shortens those of the map."""
        if not self.map_rate:
            return transformed
        return F.normalize(torch.addmm(transformed, transformed, self.map, alpha=self.map_rate), dim=1)


def shortest_length(n_seen: int) -> float:
    """Prototypes shorter than this are not scaled up to unit length.

    The means that they are regressed on have unit length. From a few seen classes the regression says next to nothing
    about a class unlike all of them: what is left of its prototype is noise, which would outscore the seen classes.
    The prototypes of seen classes have a length of about 0.8; with 20 of them all others are longer than the limit.
    """
    return 0.8 * min(1.0, (10 / n_seen) ** 2)


def build(config: KernelConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> KernelModel:
    """A model to load weights into."""
    kernel = DescriptorKernel(config, d_a, *weights["kernel.basis"].shape, weighted="kernel.weights" in weights)
    return KernelModel(config, d_z, kernel, len(weights["means"]))


def fit(dataset: ZeroShotDataset, config: KernelConfig, seed: int, context: FitContext) -> Fitted:
    """Solve the closed form, then refine it for a few epochs."""
    rows = TrainingRows.stored(dataset, torch.device("cpu"))
    moments = row_moments(dataset, rows, config.power, context.shared, context.processes)
    model = solve(config, rows.descriptors, moments, seed).to(context.device)
    if config.closed_form:
        return Fitted(model.eval(), [])
    transformed = transformed_rows(model.geometry, rows.features)
    features = model.kernel(rows.descriptors.to(context.device))
    sampler = ClassSampler.of(config.sampled_classes, len(features), seed)

    def sampled(batch: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        assert sampler is not None
        classes, labels, log_weights = sampler(labels)
        return batch, labels, features[classes], log_weights

    def loss(batch: Tensor, labels: Tensor, some: Tensor = features, log_weights: Tensor | None = None) -> Tensor:
        weights = model.coefficients, model.map
        return refinement_loss(batch, labels, some, *weights, config.map_rate, config.scale, log_weights)

    closed = model.coefficients.detach().clone()
    history = train(
        model,
        loss,
        transformed,
        rows.labels.to(context.device),
        config,
        seed=seed,
        context=context,
        on_step=sampler.start if sampler else None,
        augment=sampled if sampler else None,
    )
    with torch.no_grad():
        model.coefficients.lerp_(closed, config.closed_share)
    return Fitted(model, history)


def refinement_loss(
    batch: Tensor,
    labels: Tensor,
    features: Tensor,
    coefficients: Tensor,
    linear_map: Tensor,
    rate: float,
    scale: float,
    log_weights: Tensor | None = None,
) -> Tensor:
    """Mean cross-entropy of the scaled cosines between the mapped rows and the prototypes of the seen classes.

    Args:
        batch: [b, k], transformed rows.
        labels: [b], indices into the seen classes.
        features: [n_seen, rank], the kernel's.
        coefficients: [rank, k]
        linear_map: [k, k]
        log_weights: [n_seen], added to the scaled cosines if the classes are a sample (`nn.ClassSample`).
    """
    arguments = batch, labels, features, coefficients, linear_map, rate, scale, log_weights
    loss: Tensor = _RefinementLoss.apply(*arguments)  # type: ignore[no-untyped-call]
    return loss


class _RefinementLoss(torch.autograd.Function):
    """The loss with its gradient in closed form: five products, and no copies of a batch for autograd.

    With y = x + r x M, prototypes p of unit length and c = cos(y, p), let D = scale (softmax(scale c) − onehot) / b be
    the gradient of the cosines. That of y is (D p − y Σ D c / |y|) / |y|, and that of Φ C likewise.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        labels: Tensor,
        features: Tensor,
        weights: Tensor,
        m: Tensor,
        rate: float,
        scale: float,
        log_weights: Tensor | None,
    ) -> Tensor:
        raw = features @ weights
        length = raw.norm(dim=1, keepdim=True).clamp_(min=1e-12)
        prototypes = raw.div_(length)
        y = torch.addmm(x, x, m, alpha=rate)
        norm = y.norm(dim=1, keepdim=True).clamp_(min=1e-12)
        cosines = (y @ prototypes.T).div_(norm)
        scores = scale * cosines if log_weights is None else torch.add(log_weights, cosines, alpha=scale)
        log_odds = torch.log_softmax(scores, dim=1)
        index = labels[:, None]
        loss = -log_odds.gather(1, index).mean()
        slope = log_odds.exp_().scatter_add_(1, index, -torch.ones_like(norm)).mul_(scale / len(x)).div_(norm)
        of_prototypes = slope.T @ y
        inward = (of_prototypes * prototypes).sum(dim=1, keepdim=True)
        of_raw = of_prototypes.addcmul_(prototypes, inward, value=-1).div_(length)
        y.mul_((slope * cosines).sum(dim=1, keepdim=True).div_(norm)).neg_().addmm_(slope, prototypes)
        ctx.gradients = features.T @ of_raw, (x.T @ y).mul_(rate)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        coefficients, linear_map = ctx.gradients
        return None, None, None, coefficients * gradient, linear_map * gradient, None, None, None


@torch.no_grad()
def solve(config: KernelConfig, descriptors: Tensor, moments: FeatureMoments, seed: int) -> KernelModel:
    """The closed-form model.

    Args:
        descriptors: [n_seen, d_a]
        moments: moments of the training rows of these classes.
        seed: seed of the landmarks, if they are sampled.
    """
    kernel = DescriptorKernel.fit(descriptors, config, seed, block_weights(config, descriptors, moments, seed))
    features = kernel(descriptors)
    means = moments.class_means.to(kernel.center.dtype)
    model = KernelModel(config, means.shape[1], kernel, len(means))
    errors = None
    if config.error_share:
        left_out = left_out_errors(features, moments.class_means - moments.mean, config.ridge)
        errors = config.error_share / len(means) * left_out.T @ left_out
    model.geometry.fit_moments(moments, errors)
    model.means.copy_(model.geometry.place(means))
    model.coefficients.copy_(ridge(features, model.means, config.ridge))
    return model
