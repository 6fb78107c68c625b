"""Settings that strategies share, and `Grid`: those that validation tasks choose from."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from classnorm.nn import Distribution
from classnorm.settings import Config, Count, NotNegative, Positive, Steps, Width, added_setting, at_least
from classnorm.training import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Config):
    """Settings that every strategy has."""

    bias: Annotated[float, at_least(-2)] = 0.0
    """Subtracted from the cosines of the classes seen so far, which a learner favours; mAUC does not depend on it."""


@dataclass(frozen=True, kw_only=True)
class SolvedConfig(StreamConfig):
    """Settings of a strategy that is solved for from sums over fixed features, and trains no encoder."""


@dataclass(frozen=True, kw_only=True)
class ContinualConfig(StreamConfig):
    """Settings of a learner trained by SGD, and of its training on each task."""

    class_norm: bool = True
    """Class standardization before the embedder's last layer, and proper variance for that layer; otherwise both layers
    start with Kaiming's variance."""
    hidden: Width = 256
    """Width of the embedder's hidden layer."""
    gamma: Positive = 5.0
    """Scale γ of normalize+scale (logits are γ²·cos)."""
    final_relu: bool = True
    """ReLU on the prototypes, as in the authors' code for non-negative features; the paper's text has none."""
    init_distribution: Distribution = "uniform"
    """Draw initial weights from a uniform or a normal distribution."""
    lr: Positive = 1e-3
    """Learning rate of the embedder."""
    momentum: NotNegative = 0.9
    """Momentum of SGD, for the embedder."""
    encoder_lr: NotNegative = 5e-3
    """Learning rate of an encoder that is fine-tuned."""
    encoder_momentum: NotNegative = 0.0
    """Momentum of SGD, for the encoder."""
    batch_size: Count = 32
    """Rows of the task per step."""
    epochs: Steps = 5
    """Passes over the training rows of each task."""
    lr_decay: Positive = 0.9
    """Factor applied to the learning rates after each task."""
    grad_clip: NotNegative = 100.0
    """Maximum norm of the gradient of all weights; 0 disables clipping."""
    augment: bool = added_setting(False)
    """Train an encoder on images that are mirrored and shifted at random; with frozen blocks, mirrored only."""
    batch_norm: Literal["frozen", "trained"] = added_setting("frozen")
    """Statistics of an encoder's BatchNorm layers: those of pretraining, or of the batches, with running averages."""

    def training(self, task: int = 0) -> TrainingConfig:
        """Training settings for a task (numbered from 0)."""
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer="sgd",
            lr=self.lr * self.lr_decay**task,
            weight_decay=0.0,
            momentum=self.momentum,
            schedule="constant",
            grad_clip=self.grad_clip,
        )


@dataclass(frozen=True)
class Grid:
    """All combinations of some values of some settings.

    >>> Grid({"lr": (0.01, 0.1), "penalty": (1.0,)}).points()
    [{'lr': 0.01, 'penalty': 1.0}, {'lr': 0.1, 'penalty': 1.0}]
    """

    values: Mapping[str, Sequence[Any]]
    """Setting → values to try."""
    refined: tuple[str, ...] = ()
    """Settings for which a second round tries the neighbours of the best value, a factor of √10 away."""
    bias: bool = False
    """Choose the bias of the seen scores too, always by mH: areas do not depend on it. It needs no further run."""

    @property
    def names(self) -> tuple[str, ...]:
        return *self.values, *(("bias",) if self.bias else ())

    def extended(self, **values: Sequence[Any]) -> Grid:
        """The grid with further settings and their values."""
        return replace(self, values={**self.values, **values})

    def without(self, fixed: Container[str]) -> Grid:
        """The grid without the settings in `fixed`."""
        values = {name: tried for name, tried in self.values.items() if name not in fixed}
        return Grid(values, tuple(name for name in self.refined if name in values), self.bias and "bias" not in fixed)

    def points(self) -> list[dict[str, Any]]:
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]
