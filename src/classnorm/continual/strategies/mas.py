"""MAS-online: penalizes changes of weights that the outputs are sensitive to, whatever the labels.

Aljundi et al.: Memory Aware Synapses, ECCV 2018.
"""

from __future__ import annotations

from torch import Tensor

from classnorm.continual.strategies.importance import ImportanceStrategy
from classnorm.continual.strategies.settings import MASConfig
from classnorm.continual.strategies.strategy import GradientStrategy


class MAS(ImportanceStrategy):
    """Importance is the mean magnitude of the gradient of the outputs' squared norm; Ω ← decay · Ω + Ω_t."""

    Config = MASConfig
    grid = GradientStrategy.grid.extended(penalty=(1e-4, 1e-2, 1.0))

    @staticmethod
    def value(logits: Tensor, targets: Tensor) -> Tensor:
        return logits.square().sum(dim=1).mean()

    @staticmethod
    def measure(gradient: Tensor) -> Tensor:
        return gradient.abs()
