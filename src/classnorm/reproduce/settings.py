"""The two tables about how models are trained: training times and hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from classnorm.experiments.engine import Engine
from classnorm.methods import resolve
from classnorm.reproduce.benchmarks import Column
from classnorm.reproduce.published import BENCHMARKS, published, published_columns
from classnorm.reproduce.reproduction import Workshop, measure
from classnorm.reproduce.variants import CN
from classnorm.results.artifact import Artifact, Table
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["hyperparameters", "training_time"]


def training_time(workshop: Workshop) -> Artifact:
    """Seconds of the final training, measured here; everything else as published."""
    alone = replace(workshop, engine=Engine(jobs=1), folder=workshop.folder / "training-time")
    measured = measure(alone, "training-time", [CN])
    rows, verdicts = [], []
    for column in workshop.columns:
        if column.missing:
            rows.append([column.name, "–", "–", "–"])
            continue
        runs = [result for result in measured[CN.label, column.name].results if result is not None]
        seconds = [float(run.document["train_seconds"]) for run in runs]
        where = ", ".join(dict.fromkeys(f"{r.document['device']}, {r.document['threads']} threads" for r in runs))
        rows.append([column.label, f"{np.mean(seconds):.1f}", f"{np.max(seconds):.1f}", where])
        verdicts.append(
            Verdict(
                "The model trains in about a minute (at most 60 s)",
                column.label,
                f"{np.mean(seconds):.1f} s",
                judge_bounds(seconds, high=60.0),
            )
        )
    columns = published_columns("training-time")
    theirs = [[row.label, *(row.cells[c] or "–" for c in columns)] for row in published("training-time").values()]
    return Artifact(
        "training-time",
        "Training time",
        "The model trains in 20–30 seconds; other recent methods take from half an hour to several hours.",
        tables=[
            Table.of(
                "Measured here: 3-layer MLP + CN, seconds of the final training",
                ["data (features)", "mean", "longest", "machine"],
                rows,
            ),
            Table.of(
                "As published: one NVidia RTX 2080 Ti, ResNet-101 features; not measured here",
                ["method", *columns],
                theirs,
            ),
        ],
        verdicts=verdicts,
        notes=[
            "One training at a time, each with all threads; nothing else of this batch ran beside it.",
            *(column.missing for column in workshop.columns if column.missing),
        ],
        data={name: measured[key].values("train_seconds") for key in measured for name in [key[1]]},
    )


_FIELDS = {
    "Batch size": "batch_size",
    "Learning rate": "lr",
    "Epochs": "epochs",
    "Entropy weight": "entropy_weight",
    "Hidden dimension": "hidden",
    "γ": "gamma",
}


def hyperparameters(workshop: Workshop) -> Artifact:
    """The paper's settings, and what the recipes make of them for the data at hand."""
    rows = [[row.label, *row.cells.values()] for row in published("hyperparameters").values()]
    own = [_recipe_row(column, recipe) for column in workshop.at_hand for recipe in ("paper", "reference")]
    verdicts = [verdict for column in workshop.at_hand for verdict in _same(column)]
    return Artifact(
        "hyperparameters",
        "Hyperparameters",
        "The settings of the paper's runs.",
        tables=[
            Table.of("In the paper", ["setting", *published_columns("hyperparameters")], rows),
            Table.of("Recipes here", ["data, recipe", "Hidden layers", *_FIELDS], own),
        ],
        verdicts=verdicts,
        notes=["The recipe `reference` is the authors' released run, which differs from the paper's table."],
    )


def _recipe_row(column: Column, recipe: str) -> Sequence[str]:
    config = resolve(column.dataset, "classnorm", recipe)[1].as_dict()
    return [f"{column.name}, {recipe}", str(config["layers"] - 1), *(f"{config[f]:g}" for f in _FIELDS.values())]


def _same(column: Column) -> list[Verdict]:
    """That the recipe `paper` has the paper's settings, where the paper gives them."""
    if column.name not in BENCHMARKS:
        return []
    config = resolve(column.dataset, "classnorm", "paper")[1].as_dict()
    wanted = {label: float(published("hyperparameters")[label].cells[column.name]) for label in _FIELDS}
    differing = [label for label, value in wanted.items() if float(config[_FIELDS[label]]) != value]
    return [
        Verdict(
            "The recipe `paper` has the paper's settings",
            column.label,
            ", ".join(differing) or "all the same",
            "does not hold" if differing else "holds",
        )
    ]
