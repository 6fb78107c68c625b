"""Continual zero-shot learning: streams of tasks, strategies against forgetting, and their runner."""

from classnorm.continual.config import ContinualConfig, StreamConfig
from classnorm.continual.grid import Grid
from classnorm.continual.inputs import FeatureInputs, Inputs
from classnorm.continual.model import Learner
from classnorm.continual.runner import StreamResult, configure, run_stream
from classnorm.continual.strategies import STRATEGIES, Strategy
from classnorm.continual.stream import TaskStream
from classnorm.data.images import read_image_split

__all__ = [
    "STRATEGIES",
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
