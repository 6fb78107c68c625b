"""What CN puts between the layers: attribute normalization, class standardization, dynamic normalization."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.errors import ConfigError

__all__ = [
    "AttributeNormalization",
    "AttributeNormalizationKind",
    "ClassStandardization",
    "DynamicNormalization",
]

AttributeNormalizationKind = Literal["unit", "unit-plain", "standardize", "none"]

# A running variance below _CONSTANT + (_ROUNDING · mean)² belongs to a column that never varied: the variance of a
# constant is not 0 in float32, it is the rounding error of the mean.
_CONSTANT = 1e-10
_ROUNDING = 1e-6


class AttributeNormalization(nn.Module):
    r"""Attribute normalization, equation 2, and its alternatives.

    - ``unit``: :math:`a_c \mapsto \sqrt{d_a} \, a_c / \|a_c\|_2`. The factor keeps the first layer from starting too
      small; the authors' release has it.
    - ``unit-plain``: :math:`a_c \mapsto a_c / \|a_c\|_2`, as the paper's formula stands.
    - ``standardize``: zero mean and unit variance over the training classes, per dimension (the "−AN" rows).
      A dimension that is constant over them becomes zero.
    - ``none``: as they come.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, d_a: int, kind: AttributeNormalizationKind = "unit") -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("mean", torch.zeros(d_a))
        self.register_buffer("std", torch.ones(d_a))

    @torch.no_grad()
    def fit(self, descriptors: Tensor) -> None:
        """Take the statistics of ``standardize`` from the training classes, [n_classes, d_a]."""
        self.mean.copy_(descriptors.mean(dim=0))
        self.std.copy_(descriptors.std(dim=0, correction=0))

    def forward(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_a]."""
        if self.kind == "unit":
            return F.normalize(descriptors, dim=-1) * math.sqrt(descriptors.shape[-1])
        if self.kind == "unit-plain":
            return F.normalize(descriptors, dim=-1)
        if self.kind == "standardize":
            varies = self.std > 1e-6 * (1 + self.mean.abs())
            return torch.where(varies, (descriptors - self.mean) / torch.where(varies, self.std, 1.0), 0.0)
        return descriptors

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}"


class ClassStandardization(nn.Module):
    r"""Class standardization, equation 9: :math:`S(h_c) = (h_c - \hat\mu) / \hat\sigma`, over the class axis.

    Like batch normalization without the affine part, but the "batch" is the set of classes, so it does not depend on
    how many images a step sees. In training the statistics are those of the classes given; in evaluation the running
    ones, so that a class is embedded the same whatever other classes stand beside it. A column that was constant over
    the training classes becomes zero, in evaluation too: the layers after it never learnt anything about it.

    Args:
        d_h: number of columns.
        divide_by: ``"std"`` as in the equation, or ``"variance"`` as in the authors' release.
        momentum: weight of the newest statistics in the running ones.
        eps: added to the variance.

    >>> standardize = ClassStandardization(2)
    >>> standardize(torch.tensor([[1.0, 5.0], [3.0, 25.0]])).round(decimals=2)
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        d_h: int,
        divide_by: Literal["std", "variance"] = "std",
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.divide_by = divide_by
        self.momentum = momentum
        self.eps = eps
        self.register_buffer("running_mean", torch.zeros(d_h))
        self.register_buffer("running_var", torch.ones(d_h))

    def reset_running_statistics(self) -> None:
        self.running_mean.zero_()
        self.running_var.fill_(1.0)

    def forward(self, hidden: Tensor) -> Tensor:
        """[n_classes, d_h] → [n_classes, d_h]."""
        if not self.training:
            scale = self.running_var + self.eps
            scale = scale.rsqrt() if self.divide_by == "std" else scale.reciprocal()
            varies = self.running_var > _CONSTANT + (_ROUNDING * self.running_mean).square()
            scale = torch.where(varies, scale, 0.0)
            return (hidden - self.running_mean) * scale
        if len(hidden) < 2:
            raise ConfigError(
                "class standardization needs at least 2 training classes to have a variance; "
                "add classes or turn it off (normalization none)"
            )
        if self.divide_by == "std":
            return F.batch_norm(
                hidden,
                self.running_mean,
                self.running_var,
                training=True,
                momentum=self.momentum,
                eps=self.eps,
            )
        variance, mean = torch.var_mean(hidden, dim=0)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)
        return (hidden - mean) / (variance + self.eps)

    def extra_repr(self) -> str:
        return f"{len(self.running_mean)}, divide_by={self.divide_by!r}, momentum={self.momentum}, eps={self.eps}"


class DynamicNormalization(nn.Module):
    r"""Dynamic normalization (appendix D): :math:`DN(h_c) = h_c / \mathbb{E}\|h\|_2^2`, the mean over the classes.

    With ``xavier_fan_out`` for the next layer it aims at what class normalization does. Evaluation uses the running
    mean, which starts from the first batch.
    """

    running_norm: Tensor

    def __init__(self, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum = momentum
        self.eps = eps
        self.register_buffer("running_norm", torch.zeros(()))

    def reset_running_statistics(self) -> None:
        self.running_norm.zero_()

    def forward(self, hidden: Tensor) -> Tensor:
        """[n_classes, d_h] → [n_classes, d_h]."""
        if not self.training:
            return hidden / (self.running_norm + self.eps)
        norm = hidden.square().sum(dim=-1).mean()
        with torch.no_grad():
            # A squared norm is never 0 after a step, so 0 says "no batch yet".
            newest = torch.lerp(self.running_norm, norm, self.momentum)
            self.running_norm.copy_(torch.where(self.running_norm == 0, norm, newest))
        return hidden / (norm + self.eps)
