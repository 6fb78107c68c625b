"""How long an experiment on images will take, measured on a batch of each kind before it starts."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import nn

from classnorm.continual import ContinualConfig, Inputs, TaskStream
from classnorm.continual.strategies import LwFConfig, MemoryConfig
from classnorm.continual.strategies.settings import ImportanceConfig


@dataclass(frozen=True)
class ImagePlan:
    """The rows of an experiment, and the seconds that one of each kind takes."""

    tasks: int
    trained: int
    """Rows that are trained on, each as often as it is."""
    scored: int
    """Test rows that are scored, after each task."""
    train_seconds: float
    score_seconds: float

    @property
    def seconds(self) -> float:
        return self.trained * self.train_seconds + self.scored * self.score_seconds

    def __str__(self) -> str:
        minutes = self.seconds / 60
        return (
            f"{self.tasks} tasks, {self.trained:,} rows to train on at {1e3 * self.train_seconds:.1f} ms and "
            f"{self.scored:,} to score at {1e3 * self.score_seconds:.1f} ms: about {max(minutes, 0.1):.1f} minutes"
        )


def plan_images(stream: TaskStream, config: ContinualConfig, encoder: nn.Module, inputs: Inputs) -> ImagePlan:
    """Time a batch in training and in scoring; the encoder and its statistics stay as they are."""
    rows = torch.from_numpy(stream.train_rows[: config.batch_size])
    mode, states = encoder.training, {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()
    for _ in range(2):  # the second without what the first one sets up
        started = time.perf_counter()
        encoder(inputs.batch(rows)).square().mean().backward()
        train = (time.perf_counter() - started) / len(rows)
    encoder.zero_grad(set_to_none=True)
    encoder.eval()
    with torch.inference_mode():
        started = time.perf_counter()
        encoder(inputs.batch(rows))
        score = (time.perf_counter() - started) / len(rows)
    encoder.load_state_dict(states)
    encoder.train(mode)
    scored = len(stream.test_rows) * (stream.n_tasks + 1)
    return ImagePlan(stream.n_tasks, round(_trained_rows(stream, config)), scored, train, score)


def _trained_rows(stream: TaskStream, config: ContinualConfig) -> float:
    """Forward and backward passes of rows; a forward pass alone counts a third."""
    sizes = [len(stream.train(task)) for task in range(stream.n_tasks)]
    rows = float(config.epochs * sum(sizes))
    later = config.epochs * sum(sizes[1:])
    if isinstance(config, MemoryConfig):
        memory = min(config.memory_batch, config.memory_per_class * stream.n_classes)
        rows += later * memory / config.batch_size
    elif isinstance(config, ImportanceConfig):
        rows += sum(sizes)
    elif isinstance(config, LwFConfig):
        rows += later / 3
    return rows
