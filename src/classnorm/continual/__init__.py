"""Continual zero-shot learning: streams of tasks, strategies against forgetting, and the runner that records logits."""

from classnorm.continual.config import ContinualConfig, StreamConfig
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
