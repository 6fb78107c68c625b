"""Strategies against forgetting, one per file, and their registry. `settings.py` loads without PyTorch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from classnorm.continual.config import ContinualConfig, StreamConfig
from classnorm.continual.strategies.settings import (
    AGEMConfig,
    AnalyticConfig,
    EWCConfig,
    LwFConfig,
    MASConfig,
    MemoryConfig,
    RandomFeatureConfig,
)
from classnorm.continual.stream import TaskStream
from classnorm.errors import unknown_name
from classnorm.lazy import lazy_names
from classnorm.methods.settings.kernel import recorded_blocks
from classnorm.registry import Registry

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

_OWN: dict[str, tuple[str, type[StreamConfig]]] = {
    "sequential": (f"{__name__}.sequential:Sequential", ContinualConfig),
    "multitask": (f"{__name__}.multitask:Multitask", ContinualConfig),
    "ewc": (f"{__name__}.ewc:EWC", EWCConfig),
    "mas": (f"{__name__}.mas:MAS", MASConfig),
    "agem": (f"{__name__}.agem:AGEM", AGEMConfig),
    "replay": (f"{__name__}.replay:Replay", MemoryConfig),
    "lwf": (f"{__name__}.lwf:LwF", LwFConfig),
    "analytic": (f"{__name__}.analytic:Analytic", AnalyticConfig),
    "ranpac": (f"{__name__}.ranpac:RanPAC", RandomFeatureConfig),
    "acil": (f"{__name__}.acil:ACIL", RandomFeatureConfig),
}
"""Name → where the strategy is, and its settings."""

STRATEGIES: Registry[type[Strategy]] = Registry(
    "classnorm.strategies", type, {name: reference for name, (reference, _) in _OWN.items()}
)


def strategy_named(name: str) -> type[Strategy]:
    _check_name(name)
    return STRATEGIES[name]


def strategy_config(name: str) -> type[StreamConfig]:
    """The class of a strategy's settings, without PyTorch unless a plug-in needs it."""
    _check_name(name)
    return dict(_OWN.values()).get(STRATEGIES.reference(name)) or STRATEGIES[name].Config


def configure(stream: TaskStream, strategy: str, **changes: Any) -> StreamConfig:
    """The settings of a strategy for a stream, with some fields changed.

    There is no final ReLU if the features of the first task have either sign, and on SUN the memory is halved. Features
    of several encoders have a geometry each.
    """
    kind, dataset = strategy_config(strategy), stream.dataset
    names = [f.name for f in fields(kind)]
    for name in changes:
        if name not in names:
            raise unknown_name("setting", name, names)
    config = kind()
    if isinstance(config, ContinualConfig):
        config = replace(config, final_relu=bool((dataset.loaded(stream.train(0)) >= 0).all()))
    if isinstance(config, AnalyticConfig):
        config = replace(config, **recorded_blocks(dataset))
    if isinstance(config, MemoryConfig) and dataset.benchmark == "SUN":
        config = replace(config, memory_per_class=5)
    return replace(config, **changes)


def _check_name(name: str) -> None:
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
