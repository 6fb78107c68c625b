"""EWC-online: weights that the likelihood of earlier tasks depends on are held fast.

Schwarz et al.: Progress & Compress, ICML 2018, after Kirkpatrick et al.: Overcoming catastrophic forgetting in neural
networks, PNAS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from classnorm.continual.strategies.importance import ImportanceConfig, ImportanceStrategy, mean_over_gradients

__all__ = ["EWC", "EWCConfig"]


@dataclass(frozen=True, kw_only=True)
class EWCConfig(ImportanceConfig):
    """As in the authors' release."""

    penalty: float = 10.0
    """Weight of the penalty Σ importance · (weight − weight after the last task)²."""
    decay: float = 0.99
    """Factor of the importances so far when those of a new task are added."""


class EWC(ImportanceStrategy):
    """Importance is the diagonal of the empirical Fisher information: the mean squared gradient of the log-likelihood
    of the true labels, scaled to [0, 1] over all weights; F ← decay · F + F_t."""

    Config = EWCConfig

    def task_importance(self, task: int) -> list[Tensor]:
        fisher = mean_over_gradients(
            list(self.parameters.values()),
            lambda rows: self.cross_entropy(task, rows, self.classes(task)),
            torch.square,
            self.problem.rows[task],
            self.config.importance_batch,
        )
        low = torch.stack([part.min() for part in fisher]).min()
        high = torch.stack([part.max() for part in fisher]).max()
        spread = torch.where(high > low, high - low, 1.0)
        return [(part - low) / spread for part in fisher]
