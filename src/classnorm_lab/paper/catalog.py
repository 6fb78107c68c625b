"""The catalog of tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from classnorm_lab.paper.beyond import beyond, measure_beyond
from classnorm_lab.paper.czsl import czsl_curves, czsl_table, measure_czsl_curves, measure_czsl_table
from classnorm_lab.paper.czsl_images import czsl_images, measure_czsl_images
from classnorm_lab.paper.figures import FIGURES, FigureSpec
from classnorm_lab.paper.leaderboard import leaderboard, measure_leaderboard
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.tables import TABLES, TableSpec
from classnorm_lab.paper.training_cost import (
    hyperparameters,
    measure_hyperparameters,
    measure_training_time,
    training_time,
)
from classnorm_lab.paper.verdicts import Finding


@dataclass(frozen=True)
class Item:
    """A table or figure with a form of its own."""

    kind: str
    title: str
    measure: Callable[[Reproduction], dict[str, Any]]
    """Run what is not finished, and return the numbers, as JSON."""
    present: Callable[[Mapping[str, Any]], Finding]
    """Tables, plots and verdicts from the numbers."""
    needs_features: bool = True
    """Whether attributes alone do not suffice."""


CATALOG: dict[str, TableSpec | FigureSpec | Item] = {
    **TABLES,
    "training-time": Item("table", "Training time", measure_training_time, training_time),
    "hyperparameters": Item("table", "Hyperparameters", measure_hyperparameters, hyperparameters),
    "leaderboard": Item("table", "Every method, one protocol", measure_leaderboard, leaderboard),
    "beyond": Item("table", "Beyond the paper: ablations", measure_beyond, beyond),
    **FIGURES,
    "czsl-table": Item("table", "Continual zero-shot learning", measure_czsl_table, czsl_table),
    "czsl-curves": Item("figure", "Continual zero-shot learning, task by task", measure_czsl_curves, czsl_curves),
    "czsl-images": Item("table", "Continual zero-shot learning from images", measure_czsl_images, czsl_images),
}
"""Name → table or figure, in the order of the page."""
