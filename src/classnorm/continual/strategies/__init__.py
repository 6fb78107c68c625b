"""Strategies against forgetting, one per file. `settings.py` has their names and settings, and no PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.continual.strategies.settings import (
    STRATEGIES,
    AGEMConfig,
    AnalyticConfig,
    EWCConfig,
    LwFConfig,
    MASConfig,
    MemoryConfig,
    RandomFeatureConfig,
    configure,
    strategy_config,
    strategy_named,
)
from classnorm.registry import lazy_names

if TYPE_CHECKING:
    from classnorm.continual.strategies.strategy import GradientStrategy, Strategy, StreamProblem

__all__ = [
    "STRATEGIES",
    "AGEMConfig",
    "AnalyticConfig",
    "EWCConfig",
    "GradientStrategy",
    "LwFConfig",
    "MASConfig",
    "MemoryConfig",
    "RandomFeatureConfig",
    "Strategy",
    "StreamProblem",
    "configure",
    "strategy_config",
    "strategy_named",
]

__getattr__, __dir__ = lazy_names(__name__, {"strategy": "GradientStrategy Strategy StreamProblem"})  # it needs PyTorch
