"""Settings of DCN."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, TrainedMethodConfig, late_method
from classnorm.methods.settings.parts import NormalizedConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeNormalizationKind
from classnorm.settings import require
from classnorm.training import Schedule

__all__ = ["METHOD", "DCNConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class DCNConfig(TrainedMethodConfig, NormalizedConfig):
    """Settings of the Deep Calibration Network. The defaults are the recipe `reference`."""

    epochs: int = 20
    batch_size: int = 64
    lr: float = 3e-4
    weight_decay: float = 0.0
    schedule: Schedule = "cosine"
    feature_normalization: AttributeNormalizationKind = "none"
    attribute_normalization: AttributeNormalizationKind = "unit-plain"
    hidden: int = 1024
    """Hidden units of the network from features to the common space."""
    dropout: float = 0.5
    """Share of hidden units dropped in training."""
    scale: float = 5.0
    """Factor of the inner products, the inverse temperature of the softmax over the seen classes."""
    unseen_scale: float = 0.03
    """The same for the softmax over the unseen classes, whose entropy is minimised."""
    entropy_weight: float = 1.0
    """Weight of that entropy; 0 trains without the descriptors of unseen classes."""

    def check(self) -> None:
        super().check()
        require(
            self,
            positive=["scale", "unseen_scale"],
            at_least={"hidden": 1, "entropy_weight": 0},
            between={"dropout": (0, 0.99)},
        )


_PAPER_STEPS = 100_000
# In the authors' code; other datasets have the settings of CUB.
_PAPER: dict[str, dict[str, float]] = {
    "SUN": {"unseen_scale": 0.1},
    "AWA1": {"scale": 2.0},
    "AWA2": {"scale": 2.0},
    "APY": {"scale": 3.0, "unseen_scale": 1.0, "entropy_weight": 0.0},
}


def paper(dataset: ZeroShotDataset) -> DCNConfig:
    """The settings and the schedule of the authors' code, without calibration."""
    epochs = max(1, round(_PAPER_STEPS / -(-len(dataset.split.train) // 64)))
    config = DCNConfig(epochs=epochs, lr=1e-4, schedule="inverse", calibration="none")
    return config.replace(**_PAPER.get(dataset.benchmark or "", {}))


def reference(dataset: ZeroShotDataset) -> DCNConfig:
    """The network and the loss of `paper` for CUB; learning rate and epochs were selected by validation on CUB."""
    return DCNConfig()


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(3e-5, 1e-3, log=True),
    "epochs": Range(10, 40, log=True, whole=True),
    "scale": Range(1.0, 10.0, log=True),
    "unseen_scale": Range(0.01, 0.1, log=True),
    "entropy_weight": Range(0.03, 3.0, log=True),
    "dropout": Range(0.2, 0.8),
}
GRID: Space = {
    "lr": Choice((1e-4, 3e-4)),
    "scale": Choice((2.0, 5.0)),
    "entropy_weight": Choice((0.1, 1.0)),
}
METHOD = late_method("dcn", DCNConfig, RECIPES, SPACE, GRID, sees_unseen=True)
