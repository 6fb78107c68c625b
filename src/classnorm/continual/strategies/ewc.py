"""EWC-online: penalizes changes of weights that the likelihood of earlier tasks depends on.

Schwarz et al.: Progress & Compress, ICML 2018, after Kirkpatrick et al.: Overcoming catastrophic forgetting in neural
networks, PNAS 2017.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.continual.strategies.importance import ImportanceStrategy
from classnorm.continual.strategies.settings import EWCConfig
from classnorm.continual.strategies.strategy import GradientStrategy


class EWC(ImportanceStrategy):
    """Importance is the diagonal of the empirical Fisher information: the mean squared gradient of the log-likelihood
    of the true labels, scaled to [0, 1] over all weights; F ← decay · F + F_t."""

    Config = EWCConfig
    grid = GradientStrategy.grid.extended(penalty=(1.0, 10.0, 100.0))

    @staticmethod
    def value(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets)

    @staticmethod
    def measure(gradient: Tensor) -> Tensor:
        return gradient.square()

    def task_importance(self, task: int) -> list[Tensor]:
        fisher = super().task_importance(task)
        low = torch.stack([part.min() for part in fisher]).min()
        high = torch.stack([part.max() for part in fisher]).max()
        spread = torch.where(high > low, high - low, 1.0)
        return [(part - low) / spread for part in fisher]
