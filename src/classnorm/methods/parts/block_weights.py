"""Weights of kernels that describe the same classes: attributes and text, say.

The weights are those with which ridge regression best predicts the mean of a class from all other classes, in closed
form: with A = Σ w K + λI, the errors of leaving out one class at a time are A⁻¹M / diag(A⁻¹). The classes that a fit
does not see, and all its scores, have no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 1.0)
_SWEEPS = 2


def left_out_error(gram: Tensor, targets: Tensor, penalty: float) -> float:
    """The mean squared error of kernel ridge regression for rows left out, one at a time.

    Args:
        gram: [n, n]
        targets: [n, k]
    """
    inverse = torch.linalg.inv(gram + penalty * torch.eye(len(gram), dtype=gram.dtype))
    errors = inverse @ targets / inverse.diagonal()[:, None]
    return float(errors.square().sum(dim=1).mean())


def choose_weights(grams: Sequence[Tensor], targets: Tensor, penalty: float) -> list[float]:
    """The weights of the kernels, which add up to 1, with the smallest error. A kernel that does not help has none.

    One kernel at a time gets every share of a grid; the others keep their proportions.

    Args:
        grams: [n, n] of each kernel.
        targets: [n, k]
    """
    best = torch.full((len(grams),), 1.0 / len(grams), dtype=torch.float64)
    table, error = torch.stack(list(grams)), float("inf")
    for _ in range(_SWEEPS):
        for block in range(len(grams)):
            others = best.clone()
            others[block] = 0.0
            rest = others.sum()
            for share in _SHARES if rest > 0 else ():
                weights = (1.0 - share) / rest * others
                weights[block] = share
                if (found := left_out_error(torch.tensordot(weights, table, 1), targets, penalty)) < error:
                    best, error = weights, found
    return best.tolist()
