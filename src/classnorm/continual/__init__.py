"""Continual zero-shot learning: streams of tasks, strategies against forgetting, and their runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.continual.arrivals import Arrivals
from classnorm.continual.config import ContinualConfig, StreamConfig
from classnorm.continual.grid import Grid
from classnorm.continual.strategies import STRATEGIES, configure
from classnorm.continual.stream import TaskStream
from classnorm.data.images import read_image_split
from classnorm.lazy import lazy_names

if TYPE_CHECKING:
    from classnorm.continual.inputs import FeatureInputs, Inputs
    from classnorm.continual.model import Learner
    from classnorm.continual.runner import StreamResult, run_stream
    from classnorm.continual.strategies.strategy import Strategy

__all__ = [
    "STRATEGIES",
    "Arrivals",
    "ContinualConfig",
    "FeatureInputs",
    "Grid",
    "Inputs",
    "Learner",
    "Strategy",
    "StreamConfig",
    "StreamResult",
    "TaskStream",
    "configure",
    "read_image_split",
    "run_stream",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "inputs": "FeatureInputs Inputs",
        "model": "Learner",
        "runner": "StreamResult run_stream",
        "strategies.strategy": "Strategy",
    },
)  # they need PyTorch
