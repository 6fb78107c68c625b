"""A-GEM: to first order, no step increases the loss on a memory of earlier tasks.

Chaudhry et al.: Efficient Lifelong Learning with A-GEM, ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from classnorm.continual.strategies.memory import MemoryStrategy
from classnorm.continual.strategies.settings import AGEMConfig


class AGEM(MemoryStrategy):
    """The reference loss is over all classes of earlier tasks."""

    Config = AGEMConfig

    def after_backward(self, task: int) -> None:
        if task == 0:
            return
        parameters = [p for p in self.parameters.values() if p.grad is not None]
        loss = self.cross_entropy(task, self.remembered(), self.seen(task - 1))
        reference = torch.autograd.grad(loss, parameters, materialize_grads=True)
        project_([p.grad for p in parameters if p.grad is not None], reference)


@torch.no_grad()
def project_(gradients: Sequence[Tensor], reference: Sequence[Tensor]) -> None:
    r"""In place, :math:`g \leftarrow g - \frac{\min(g^\top r, 0)}{r^\top r} r`: no component of g opposes r."""
    square = _dot(reference, reference)
    factor = _dot(gradients, reference).clamp(max=0.0) / square.clamp(min=torch.finfo(square.dtype).tiny)
    for gradient, part in zip(gradients, reference, strict=True):
        gradient.addcmul_(part, factor, value=-1.0)


def _dot(x: Sequence[Tensor], y: Sequence[Tensor]) -> Tensor:
    return torch.stack([torch.dot(a.flatten(), b.flatten()) for a, b in zip(x, y, strict=True)]).sum()
