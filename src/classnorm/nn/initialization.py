"""Initialisations of a linear layer by the variance of its weights (equations 8, 10 and appendix H)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from classnorm.errors import ConfigError
from classnorm.nn.kinds import Distribution, Initialization


def weight_variance(scheme: Initialization, d_in: int, d_out: int, mean_square_norm: float | None = None) -> float:
    r"""Var[V_ij] of a layer with `d_in` inputs and `d_out` outputs.

    ================== ==========================================================================
    ``proper``         1/(d_out·d_in), equation 10: for standardized inputs, ‖h‖² = d_in;
                       for a first layer it is the 1/d_a correction of appendix H
    ``xavier``         2/(d_in + d_out)
    ``xavier_fan_out`` 1/d_out, as statement 2 and dynamic normalization assume
    ``kaiming_fan_in`` 2/d_in
    ``kaiming_fan_out`` 2/d_out
    ``data_dependent`` 1/(d_out·E‖h‖²), equation 8, from the inputs of the layer
    ``torch``          1/(3·d_in), PyTorch's default
    ================== ==========================================================================

    >>> weight_variance("proper", 4, 8)
    0.03125
    """
    if scheme == "data_dependent":
        if not mean_square_norm or not math.isfinite(mean_square_norm):
            raise ConfigError("init data_dependent needs inputs of finite, non-zero norm; choose another init")
        return 1.0 / (d_out * mean_square_norm)
    variances = {
        "proper": 1.0 / (d_out * d_in),
        "xavier": 2.0 / (d_in + d_out),
        "xavier_fan_out": 1.0 / d_out,
        "kaiming_fan_in": 2.0 / d_in,
        "kaiming_fan_out": 2.0 / d_out,
        "torch": 1.0 / (3.0 * d_in),
    }
    return variances[scheme]


@torch.no_grad()
def initialize_(
    layer: nn.Linear,
    scheme: Initialization,
    distribution: Distribution = "uniform",
    generator: torch.Generator | None = None,
    inputs: Tensor | None = None,
) -> nn.Linear:
    """Draw the weights of `layer` and zero its bias; ``torch`` draws both from ±1/√d_in, as PyTorch does.

    Args:
        inputs: [n_classes, d_in], sample inputs of the layer; only ``data_dependent`` uses them.
    """
    d_out, d_in = layer.weight.shape
    if scheme == "torch":
        bound = 1.0 / math.sqrt(d_in)
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound, generator=generator)
        return layer
    norm = None if inputs is None else float(inputs.square().sum(dim=-1).mean())
    variance = weight_variance(scheme, d_in, d_out, norm)
    if distribution == "normal":
        layer.weight.normal_(0.0, math.sqrt(variance), generator=generator)
    else:
        bound = math.sqrt(3.0 * variance)
        layer.weight.uniform_(-bound, bound, generator=generator)
    if layer.bias is not None:
        layer.bias.zero_()
    return layer


def proper_variance_(
    layer: nn.Linear, distribution: Distribution = "uniform", generator: torch.Generator | None = None
) -> nn.Linear:
    """Initialise the output layer of class normalization, equation 10: Var V = 1/(d_z·d_h), uniform or normal.

    >>> layer = proper_variance_(nn.Linear(256, 1024))
    >>> bool(abs(layer.weight.var() * 256 * 1024 - 1) < 0.02)
    True
    """
    return initialize_(layer, "proper", distribution, generator)
