"""Experience replay: every step also learns from a batch of remembered rows.

Chaudhry et al.: On Tiny Episodic Memories in Continual Learning, 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor

from classnorm.continual.strategies.memory import MemoryStrategy
from classnorm.continual.strategies.settings import MemoryConfig


class Replay(MemoryStrategy):
    """The batch and the remembered rows form one batch. Its softmax is over all classes seen so far, which the memory
    makes possible."""

    Config = MemoryConfig

    def classes(self, task: int) -> range:
        return self.seen(task)

    def loss(self, task: int, rows: Tensor) -> Tensor:
        return super().loss(task, torch.cat([rows, self.remembered()]) if len(self.memory) else rows)
