"""Normalize+scale: scaled cosine logits, their variance at initialisation (equations 1, 4 and 5), and losses on them.

With tens of thousands of classes, the softmax of a step is over a sample of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.errors import ConfigError


def cosine_logits(features: Tensor, prototypes: Tensor, gamma: float | Tensor = 5.0) -> Tensor:
    r"""Normalize+scale, equation 1: :math:`\hat y_c = \gamma^2 \, z^\top p_c / (\|z\| \, \|p_c\|)`.

    A zero vector has zero logits.

    Args:
        features: [n, d_z].
        prototypes: [n_classes, d_z].
        gamma: scale γ of features and prototypes.

    Returns:
        [n, n_classes].

    >>> cosine_logits(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]]), gamma=5.0)
    tensor([[25.,  0.]])
    """
    return F.normalize(features, dim=-1) @ (gamma**2 * F.normalize(prototypes, dim=-1)).T


def dot_logits(features: Tensor, prototypes: Tensor) -> Tensor:
    r"""Plain dot products :math:`\hat y_c = z^\top p_c`, the "−NS" rows of the paper. Shapes as in `cosine_logits`."""
    return features @ prototypes.T


def cosine_cross_entropy(features: Tensor, prototypes: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    r"""Cross-entropy of normalize+scale, mean over rows; equals ``F.cross_entropy`` of `cosine_logits` with less work.

    The gradient is known in closed form: with :math:`u_c = p_c / \|p_c\|` and :math:`g_c` the gradient with respect to
    :math:`u_c`, the prototype gets :math:`(g_c - (g_c^\top u_c) u_c) / \|p_c\|`. Only `prototypes` get a gradient, and
    it cannot be differentiated again.

    Args:
        features: [n, d_z] of unit length.
        prototypes: [n_classes, d_z].
        labels: [n].
        scale: γ², a scalar.

    >>> features, prototypes = torch.eye(2), torch.tensor([[2.0, 0.0], [3.0, 3.0]])
    >>> loss = cosine_cross_entropy(features, prototypes, torch.tensor([0, 1]), torch.tensor(25.0))
    >>> loss.isclose(F.cross_entropy(cosine_logits(features, prototypes), torch.tensor([0, 1])))
    tensor(True)
    """
    loss: Tensor = _CosineCrossEntropy.apply(features, prototypes, labels, scale)  # type: ignore[no-untyped-call]
    return loss


class _CosineCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, prototypes: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
        inverse = torch.linalg.vector_norm(prototypes, dim=1, keepdim=True).clamp_min_(1e-12).reciprocal_()
        unit = prototypes * inverse
        log_p = torch.log_softmax((features @ unit.T).mul_(scale), dim=1)
        loss = F.nll_loss(log_p, labels)
        if ctx.needs_input_grad[1]:
            error = log_p.exp_()
            error[torch.arange(len(labels), device=labels.device), labels] -= 1.0
            gradient = error.mul_(scale / len(labels)).T @ features
            along = torch.linalg.vecdot(gradient, unit).unsqueeze(1)
            ctx.save_for_backward(gradient.addcmul_(along, unit, value=-1.0).mul_(inverse))
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return None, gradient * gradients[0], None, None


def logit_variance(gamma: float, d_z: int) -> float:
    r"""Statement 1, equation 4: :math:`\mathrm{Var}[\hat y_c] \approx \gamma^4 d_z / (d_z - 2)^2`.

    The approximation treats the norms as independent of the product; for Gaussian vectors the exact value is
    :math:`\gamma^4 / d_z`, which this exceeds by :math:`(d_z / (d_z - 2))^2`.

    >>> round(logit_variance(5.0, 2048), 3)
    0.306
    """
    if d_z <= 2:
        raise ConfigError(f"the logit variance is not defined for d_z = {d_z}; features need more than 2 dimensions")
    return gamma**4 * d_z / (d_z - 2) ** 2


def gamma_for_variance(variance: float, d_z: int) -> float:
    r"""Equation 5, the γ for a given logit variance: :math:`\gamma = (\nu (d_z - 2)^2 / d_z)^{1/4}`.

    (The paper prints 6.78 for the example below; its own formula gives 6.72.)

    >>> round(gamma_for_variance(1.0, 2048), 2)
    6.72
    """
    if variance <= 0:
        raise ConfigError(f"the logit variance is {variance}; it must be positive")
    return float((variance / logit_variance(1.0, d_z)) ** 0.25)


def entropy_regularizer(logits: Tensor, log_weights: Tensor | None = None) -> Tensor:
    r"""Entropy regulariser (appendix D), the negative entropy :math:`\sum_c \hat p_c \log \hat p_c`, mean over rows.

    Added to the loss with a positive weight, it rewards entropy.

    Args:
        logits: [n, n_classes].
        log_weights: [n_classes], logarithm of the number of classes that each stands for (`ClassSample`).

    >>> entropy_regularizer(torch.zeros(1, 4)).exp()
    tensor(0.2500)
    """
    if log_weights is None:
        log_p = F.log_softmax(logits, dim=-1)
        return (log_p.exp() * log_p).sum(dim=-1).mean()
    log_p = F.log_softmax(logits + log_weights, dim=-1)
    return (log_p.exp() * (log_p - log_weights)).sum(dim=-1).mean()


class ClassSample(NamedTuple):
    """The classes of a batch and some others."""

    classes: Tensor
    """[m], numbers of the classes"""
    labels: Tensor
    """[b], positions of the labels in `classes`"""
    log_weights: Tensor
    """[m], logarithm of the number of classes that each stands for: 0 for those of the batch. Added to the logits, it
    makes the sum of their exponentials an unbiased estimate of the sum over all classes."""


def sample_classes(labels: Tensor, n_classes: int, size: int, generator: torch.Generator) -> ClassSample:
    """The classes of a batch and `size` others, drawn without replacement.

    Args:
        labels: [b], numbers of classes.
        generator: on the CPU, so that the draws do not depend on the device.

    >>> sample = sample_classes(torch.tensor([7, 2, 7]), 10, 4, torch.Generator().manual_seed(0))
    >>> sample.classes[sample.labels]
    tensor([7, 2, 7])
    >>> sample.log_weights.exp()
    tensor([1., 1., 2., 2., 2., 2.])
    """
    own, positions = torch.unique(labels, return_inverse=True)
    order = torch.randperm(n_classes, generator=generator).to(labels.device)
    others = order[~torch.isin(order, own)][:size]
    weight = math.log((n_classes - len(own)) / len(others)) if len(others) else 0.0
    log_weights = torch.cat([torch.zeros(len(own)), torch.full((len(others),), weight)]).to(labels.device)
    return ClassSample(torch.cat([own, others]), positions, log_weights)
