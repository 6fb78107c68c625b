"""MAS-online: weights that the outputs are sensitive to are held fast, whatever the labels.

Aljundi et al.: Memory Aware Synapses, ECCV 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from classnorm.continual.strategies.importance import ImportanceConfig, ImportanceStrategy, mean_over_gradients

__all__ = ["MAS", "MASConfig"]


@dataclass(frozen=True, kw_only=True)
class MASConfig(ImportanceConfig):
    """As in the authors' release."""

    penalty: float = 1e-4
    """Weight of the penalty Σ importance · (weight − weight after the last task)²."""
    decay: float = 0.95
    """Factor of the importances so far when those of a new task are added."""


class MAS(ImportanceStrategy):
    """Importance is the mean magnitude of the gradient of the outputs' squared norm; Ω ← decay · Ω + Ω_t."""

    Config = MASConfig

    def task_importance(self, task: int) -> list[Tensor]:
        return mean_over_gradients(
            list(self.parameters.values()),
            lambda rows: self.logits(task, rows, self.classes(task)).square().sum(dim=1).mean(),
            torch.abs,
            self.problem.rows[task],
            self.config.importance_batch,
        )
