"""The catalog of tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from classnorm.reproduce.beyond import beyond, measure_beyond
from classnorm.reproduce.czsl import czsl_curves, czsl_table, measure_czsl_curves, measure_czsl_table
from classnorm.reproduce.czsl_images import czsl_images, measure_czsl_images
from classnorm.reproduce.figures import FIGURES
from classnorm.reproduce.leaderboard import leaderboard, measure_leaderboard
from classnorm.reproduce.paper_table import measure_table, table_artifact
from classnorm.reproduce.reproduction import Reproduction
from classnorm.reproduce.table_specs import TABLES
from classnorm.reproduce.training_cost import (
    hyperparameters,
    measure_hyperparameters,
    measure_training_time,
    training_time,
)
from classnorm.results.artifact import Artifact

__all__ = ["CATALOG", "Item"]


@dataclass(frozen=True)
class Item:
    kind: str
    title: str
    measure: Callable[[Reproduction], dict[str, Any]]
    """Run what is not finished, and return the numbers, as JSON."""
    present: Callable[[Mapping[str, Any]], Artifact]
    """Tables, plots and verdicts from the numbers."""
    needs_features: bool = True
    """Whether attributes alone do not suffice."""

    def make(self, reproduction: Reproduction) -> Artifact:
        return self.present(self.measure(reproduction))


CATALOG: dict[str, Item] = {
    **{
        name: Item("table", spec.title, partial(measure_table, spec), partial(table_artifact, spec))
        for name, spec in TABLES.items()
    },
    "training-time": Item("table", "Training time", measure_training_time, training_time),
    "hyperparameters": Item("table", "Hyperparameters", measure_hyperparameters, hyperparameters),
    "leaderboard": Item("table", "Every method, one protocol", measure_leaderboard, leaderboard),
    "beyond": Item("table", "Beyond the paper: ablations", measure_beyond, beyond),
    **{n: Item("figure", spec.title, spec.measure, spec.present, spec.needs_features) for n, spec in FIGURES.items()},
    "czsl-table": Item("table", "Continual zero-shot learning", measure_czsl_table, czsl_table),
    "czsl-curves": Item("figure", "Continual zero-shot learning, task by task", measure_czsl_curves, czsl_curves),
    "czsl-images": Item("table", "Continual zero-shot learning from images", measure_czsl_images, czsl_images),
}
"""Name → table or figure, in the order of the page."""
