"""Settings of the bilinear methods DeViSE, ALE and SJE, which differ in their ranking loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from classnorm.methods.method import DescriptorConfig, Method, TrainedMethodConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.registry import Lazy
from classnorm.settings import Positive


@dataclass(frozen=True, kw_only=True)
class RankingConfig(TrainedMethodConfig, DescriptorConfig):
    """Settings of the three methods. The defaults are the recipe `reference`."""

    margin: Positive = 1.0
    """Margin by which the correct class must score above every other."""
    feature_normalization: Literal["unit", "standardize", "none"] = "unit"
    """Features: `unit` norm, `standardize` (zero mean and unit variance over the training rows), or `none`."""
    batch_size: int = 128
    lr: float = 1e-3


# Plain stochastic gradient descent, one row per step at a constant rate, as published. The rate and the
# number of epochs are our choice.
_PAPER: dict[str, Any] = {
    "batch_size": 1,
    "optimizer": "sgd",
    "lr": 0.01,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "schedule": "constant",
    "attribute_normalization": "unit-plain",
}
SPACE: Space = {
    "lr": Range(3e-4, 1e-2, log=True),
    "margin": Range(0.1, 3.0, log=True),
    "epochs": Range(10, 100, log=True, whole=True),
    "weight_decay": Range(1e-6, 1e-3, log=True),
}
GRID: Space = {
    "lr": Choice((1e-3, 3e-3)),
    "margin": Choice((0.3, 1.0)),
    "epochs": Choice((25, 50)),
}


def _method(name: str, **published: Any) -> Method:
    """The recipe `reference` is a short, untuned schedule; `paper` has the `published` settings."""
    recipes = {
        "paper": lambda dataset: RankingConfig(**_PAPER | published),
        "reference": lambda dataset: RankingConfig(),
    }
    return Method(
        RankingConfig,
        recipes,
        build=Lazy("classnorm.methods.ranking", "build"),
        fit=Lazy("classnorm.methods.ranking", f"fit_{name}"),
        space=SPACE,
        grid=GRID,
        parallel=True,
    )


DEVISE = _method("devise", margin=0.1, feature_normalization="none")
ALE = _method("ale")
SJE = _method("sje")
