"""Settings shared by methods that generate features of unseen classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import MethodConfig
from classnorm.methods.settings.shared import DescriptorConfig
from classnorm.settings import Count, NotNegative, Positive, Steps, Width, added_setting, at_most

Output = Literal["linear", "relu", "sigmoid"]

REACH = 3.0
"""`classifier_reach` of the recipes `reference`, from validation on CUB; stored configs without it have 0."""
_TUNED_WIDTH = 312  # descriptors for which the rates of the recipes `reference` were selected


def rate(dataset: ZeroShotDataset, lr: float) -> float:
    """A learning rate selected on CUB's attributes, lowered for wider descriptors.

    A step of Adam moves every weight by about the rate, and so a hidden unit by about the rate times the sum of its
    inputs, which grows with the width of descriptors and noise. With sentence vectors, rates of 1e-3 collapse.
    """
    return lr * min(1.0, _TUNED_WIDTH / dataset.d_a)


@dataclass(frozen=True, kw_only=True)
class SoftmaxRowsConfig(MethodConfig, DescriptorConfig):
    """Settings of a softmax classifier trained on real and generated features."""

    batch_size: Count = 64
    """Rows per step."""
    synthesized: Annotated[Count, at_most(10**6)] = 300
    """Generated features per unseen class for the final classifier."""
    classifier_lr: Positive = 1e-3
    """Learning rate of the softmax classifiers; the final one uses `classifier_reach` if that is set."""
    classifier_epochs: Steps = 25
    """Passes of the softmax classifiers over their rows."""
    classifier_reach: NotNegative = added_setting(0.0)
    """Learning rate times steps of the final classifier, instead of a learning rate: the scale of its scores then does
    not grow with the number of rows, so that calibration on smaller splits fits. 0: use `classifier_lr`."""


@dataclass(frozen=True, kw_only=True)
class GameConfig(SoftmaxRowsConfig):
    """Settings of a generator trained against a Wasserstein critic."""

    epochs: Steps = 4
    """Passes of the generator over the training rows; the critic makes `critic_steps` times as many."""
    lr: Positive = 3e-4
    """Learning rate of generator and critic (Adam, β 0.5 and 0.999)."""
    hidden: Width = 1024
    """Hidden units of the generator and of the critic."""
    critic_steps: Steps = 5
    """Critic steps per generator step."""
    gradient_penalty: NotNegative = 10.0
    """Weight λ of the gradient penalty."""

    @property
    def output(self) -> Output:
        """The last activation of the generator; training features are scaled to [0, 1]."""
        return "sigmoid"


@dataclass(frozen=True, kw_only=True)
class GenerativeConfig(GameConfig):
    """Settings of a generator whose features are not bounded above."""

    final_relu: bool = True
    """ReLU on generated features, for non-negative features; recipes set it to match the data."""

    @property
    def output(self) -> Output:
        return "relu" if self.final_relu else "linear"
