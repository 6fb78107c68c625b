"""Strategies against forgetting, one per file, and their registry."""

from classnorm.continual.strategies.agem import AGEM, AGEMConfig
from classnorm.continual.strategies.analytic import Analytic, AnalyticConfig
from classnorm.continual.strategies.ewc import EWC, EWCConfig
from classnorm.continual.strategies.lwf import LwF, LwFConfig
from classnorm.continual.strategies.mas import MAS, MASConfig
from classnorm.continual.strategies.memory import MemoryConfig
from classnorm.continual.strategies.multitask import Multitask
from classnorm.continual.strategies.replay import Replay
from classnorm.continual.strategies.sequential import Sequential
from classnorm.continual.strategies.strategy import GradientStrategy, Strategy, StreamProblem
from classnorm.errors import unknown_name
from classnorm.plugins import plugins

__all__ = [
    "STRATEGIES",
    "AGEMConfig",
    "AnalyticConfig",
    "EWCConfig",
    "GradientStrategy",
    "LwFConfig",
    "MASConfig",
    "MemoryConfig",
    "Strategy",
    "StreamProblem",
    "strategy_named",
]

STRATEGIES: dict[str, type[Strategy]] = {
    "sequential": Sequential,
    "multitask": Multitask,
    "ewc": EWC,
    "mas": MAS,
    "agem": AGEM,
    "replay": Replay,
    "lwf": LwF,
    "analytic": Analytic,
}
STRATEGIES.update(plugins("classnorm.strategies", type))


def strategy_named(name: str) -> type[Strategy]:
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    return STRATEGIES[name]
