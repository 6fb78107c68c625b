"""Normalization layers: attribute normalization, class standardization, dynamic normalization."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.errors import ConfigError
from classnorm.nn.kinds import AttributeNormalizationKind

# A running variance below _CONSTANT + (_ROUNDING · mean)² means a constant column: in float32 its variance is not 0
# but the rounding error of the mean.
_CONSTANT = 1e-10
_ROUNDING = 1e-6


class AttributeNormalization(nn.Module):
    r"""Attribute normalization, equation 2, and its alternatives.

    - ``unit``: :math:`a_c \mapsto \sqrt{d_a} \, a_c / \|a_c\|_2`. The factor, from the authors' code, keeps the
      outputs of the first layer from starting too small.
    - ``unit-plain``: :math:`a_c \mapsto a_c / \|a_c\|_2`, the paper's formula.
    - ``standardize``: zero mean and unit variance over the training classes, per dimension (the "−AN" rows).
      Dimensions that are constant over these classes become zero.
    - ``none``: unchanged.
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
        """Compute the statistics of ``standardize`` over the training classes, [n_classes, d_a]."""
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

    Batch normalization without the affine part, over classes instead of images, so it does not depend on the batch
    size. Training uses the statistics of the input classes; evaluation uses the running ones, so that the embedding of
    a class does not depend on the other classes. Columns that are constant over the training classes become zero in
    evaluation too, since the layers after them learnt nothing about them.

    Args:
        d_h: number of columns.
        divide_by: ``"std"`` as in the equation, or ``"variance"`` as in the authors' code.
        momentum: weight of new statistics in the running ones.
        eps: added to the variance.

    >>> standardize = ClassStandardization(2)
    >>> standardize(torch.tensor([[1.0, 5.0], [3.0, 25.0]])).round(decimals=2)
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, d_h: int, divide_by: Literal["std", "variance"] = "std", momentum: float = 0.1, eps: float = 1e-5
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
            return (hidden - self.running_mean) * torch.where(varies, scale, 0.0)
        if len(hidden) < 2:
            raise ConfigError(
                "class standardization needs at least 2 training classes; add classes, or disable it with "
                '`normalization="none"`'
            )
        hidden = hidden.to(self.running_mean.dtype)  # statistics are in float32, also where products are not
        if self.divide_by == "std":
            return F.batch_norm(
                hidden, self.running_mean, self.running_var, training=True, momentum=self.momentum, eps=self.eps
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

    An alternative to class normalization, with ``xavier_fan_out`` for the next layer. Evaluation uses the running mean,
    which starts from the first batch.

    The formula is printed so in the paper, but then :math:`\mathbb{E}\|DN(h)\|_2^2 = 1 / \mathbb{E}\|h\|_2^2`, not 1:
    the variance that it is meant to preserve needs the root of the mean, which ``root`` takes.
    """

    running_norm: Tensor

    def __init__(self, momentum: float = 0.1, eps: float = 1e-5, root: bool = False) -> None:
        super().__init__()
        self.momentum = momentum
        self.eps = eps
        self.root = root
        self.register_buffer("running_norm", torch.zeros(()))

    def reset_running_statistics(self) -> None:
        self.running_norm.zero_()

    def forward(self, hidden: Tensor) -> Tensor:
        """[n_classes, d_h] → [n_classes, d_h]."""
        if not self.training:
            return hidden / self._divisor(self.running_norm)
        hidden = hidden.to(self.running_norm.dtype)  # as in `ClassStandardization`
        norm = hidden.square().sum(dim=-1).mean()
        with torch.no_grad():
            # The mean squared norm is never 0 after a step, so 0 means no batch yet.
            newest = torch.lerp(self.running_norm, norm, self.momentum)
            self.running_norm.copy_(torch.where(self.running_norm == 0, norm, newest))
        return hidden / self._divisor(norm)

    def _divisor(self, norm: Tensor) -> Tensor:
        return (norm + self.eps).sqrt() if self.root else norm + self.eps
