"""Normalize+scale: scaled cosine logits and their variance at initialisation (equations 1, 4 and 5)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from classnorm.errors import ConfigError

__all__ = ["cosine_logits", "dot_logits", "entropy_regularizer", "gamma_for_variance", "logit_variance"]


def cosine_logits(features: Tensor, prototypes: Tensor, gamma: float | Tensor = 5.0) -> Tensor:
    r"""Normalize+scale, equation 1: :math:`\hat y_c = \gamma^2 \, z^\top p_c / (\|z\| \, \|p_c\|)`.

    A zero vector has zero logits.

    Args:
        features: [n, d_z].
        prototypes: [n_classes, d_z].
        gamma: scale γ of features and prototypes.

    Returns:
        [n, n_classes].

    >>> import torch
    >>> cosine_logits(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]]), gamma=5.0)
    tensor([[25.,  0.]])
    """
    return F.normalize(features, dim=-1) @ (gamma**2 * F.normalize(prototypes, dim=-1)).T


def dot_logits(features: Tensor, prototypes: Tensor) -> Tensor:
    r"""Plain dot products :math:`\hat y_c = z^\top p_c`, the "−NS" rows of the paper. Shapes as in `cosine_logits`."""
    return features @ prototypes.T


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


def entropy_regularizer(logits: Tensor) -> Tensor:
    r"""Entropy regulariser (appendix D), the negative entropy :math:`\sum_c \hat p_c \log \hat p_c`, mean over rows.

    Added to the loss with a positive weight, it rewards entropy.

    >>> import torch
    >>> entropy_regularizer(torch.zeros(1, 4)).exp()
    tensor(0.2500)
    """
    log_p = F.log_softmax(logits, dim=-1)
    return (log_p.exp() * log_p).sum(dim=-1).mean()
