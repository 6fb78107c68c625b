"""MAS-online: penalizes changes of weights that the outputs are sensitive to, whatever the labels.

Aljundi et al.: Memory Aware Synapses, ECCV 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor

from classnorm.continual.strategies.importance import ImportanceStrategy
from classnorm.continual.strategies.settings import MASConfig
from classnorm.continual.strategies.strategy import GradientStrategy

__all__ = ["MAS", "MASConfig"]


class MAS(ImportanceStrategy):
    """Importance is the mean magnitude of the gradient of the outputs' squared norm; Ω ← decay · Ω + Ω_t."""

    Config = MASConfig
    grid = GradientStrategy.grid.extended(penalty=(1e-4, 1e-2, 1.0))

    def task_importance(self, task: int) -> list[Tensor]:
        def squared_norm(rows: Tensor) -> Tensor:
            return self.logits(task, rows, self.classes(task)).square().sum(dim=1).mean()

        return self.mean_gradients(task, squared_norm, torch.abs)
