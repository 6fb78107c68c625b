"""The catalog of tables and figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from classnorm.reproduce.beyond import beyond
from classnorm.reproduce.czsl import czsl_curves, czsl_table
from classnorm.reproduce.figures import FIGURES
from classnorm.reproduce.leaderboard import leaderboard
from classnorm.reproduce.paper_table import table_artifact
from classnorm.reproduce.reproduction import Reproduction
from classnorm.reproduce.table_specs import TABLES
from classnorm.reproduce.training_cost import hyperparameters, training_time
from classnorm.results.artifact import Artifact

__all__ = ["CATALOG", "Item"]


@dataclass(frozen=True)
class Item:
    kind: str
    title: str
    make: Callable[[Reproduction], Artifact]


CATALOG: dict[str, Item] = {
    **{name: Item("table", spec.title, partial(table_artifact, spec)) for name, spec in TABLES.items()},
    "training-time": Item("table", "Training time", training_time),
    "hyperparameters": Item("table", "Hyperparameters", hyperparameters),
    "leaderboard": Item("table", "Every method, one protocol", leaderboard),
    "beyond": Item("table", "Beyond the paper: ablations", beyond),
    **{name: Item("figure", spec.title, spec.make) for name, spec in FIGURES.items()},
    "czsl-table": Item("table", "Continual zero-shot learning", czsl_table),
    "czsl-curves": Item("figure", "Continual zero-shot learning, task by task", czsl_curves),
}
"""Name → table or figure, in the order of the page."""
