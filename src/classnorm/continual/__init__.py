"""Continual zero-shot learning: streams of tasks, strategies against forgetting, and their runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.continual.config import ContinualConfig, Grid, StreamConfig
from classnorm.continual.strategies import STRATEGIES, configure
from classnorm.continual.stream import StreamOptions, TaskStream
from classnorm.data.images import read_image_split
from classnorm.registry import lazy_names

if TYPE_CHECKING:
    from classnorm.continual.learner import FeatureInputs, Inputs, Learner
    from classnorm.continual.runner import StreamResult, run_stream
    from classnorm.continual.strategies.strategy import Strategy

__all__ = [
    "STRATEGIES",
    "ContinualConfig",
    "FeatureInputs",
    "Grid",
    "Inputs",
    "Learner",
    "Strategy",
    "StreamConfig",
    "StreamOptions",
    "StreamResult",
    "TaskStream",
    "configure",
    "read_image_split",
    "run_stream",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "learner": "FeatureInputs Inputs Learner",
        "runner": "StreamResult run_stream",
        "strategies.strategy": "Strategy",
    },
)  # they need PyTorch
