"""The two tables about how models are trained: training times and hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from classnorm.experiments.engine import Engine
from classnorm.methods import resolve
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.published import PAPER_BENCHMARKS, published, published_table
from classnorm.reproduce.reproduction import Reproduction, measure
from classnorm.reproduce.variants import CN
from classnorm.results.artifact import Artifact, Table
from classnorm.results.numbers import mean, number_text
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["hyperparameters", "training_time"]


def training_time(reproduction: Reproduction) -> Artifact:
    """Seconds of the final training, measured here and as published."""
    alone = replace(reproduction, engine=Engine(jobs=1), folder=reproduction.folder / "training-time")
    runs = measure(alone, "training-time", [CN])
    rows, verdicts = [], []
    for benchmark in reproduction.benchmarks:
        if benchmark.missing:
            rows.append([benchmark.name, "–", "–", "–"])
            continue
        results = [result for result in runs[CN.label, benchmark.name].results if result is not None]
        seconds = [float(run.document["train_seconds"]) for run in results]
        where = ", ".join(dict.fromkeys(f"{r.document['device']}, {r.document['threads']} threads" for r in results))
        rows.append([benchmark.label, number_text(mean(seconds)), number_text(max(seconds)), where])
        verdicts.append(
            Verdict(
                "The model trains in about a minute (at most 60 s)",
                benchmark.label,
                f"{number_text(mean(seconds))} s",
                judge_bounds(seconds, high=60.0),
            )
        )
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
            published_table(
                "training-time",
                "As published: one NVidia RTX 2080 Ti, ResNet-101 features; not measured here",
                "method",
            ),
        ],
        verdicts=verdicts,
        notes=[
            "One training at a time, each with all threads; nothing else of this batch ran beside it.",
            *reproduction.missing,
        ],
        data={name: group.values("train_seconds") for (_, name), group in runs.items()},
    )


_FIELDS = {
    "Batch size": "batch_size",
    "Learning rate": "lr",
    "Epochs": "epochs",
    "Entropy weight": "entropy_weight",
    "Hidden dimension": "hidden",
    "γ": "gamma",
}


def hyperparameters(reproduction: Reproduction) -> Artifact:
    """The paper's settings, and those of the recipes for the available benchmarks."""
    recipes = [
        _recipe_row(benchmark, recipe) for benchmark in reproduction.available for recipe in ("paper", "reference")
    ]
    verdicts = [verdict for benchmark in reproduction.available for verdict in _same(benchmark)]
    return Artifact(
        "hyperparameters",
        "Hyperparameters",
        "The settings of the paper's runs.",
        tables=[
            published_table("hyperparameters", "In the paper", "setting"),
            Table.of("Recipes here", ["data, recipe", "Hidden layers", *_FIELDS], recipes),
        ],
        verdicts=verdicts,
        notes=["The recipe `reference` is the authors' released run, which differs from the paper's table."],
    )


def _recipe_row(benchmark: Benchmark, recipe: str) -> Sequence[str]:
    config = resolve(benchmark.dataset, "classnorm", recipe)[1].as_dict()
    return [f"{benchmark.name}, {recipe}", str(config["layers"] - 1), *(f"{config[f]:g}" for f in _FIELDS.values())]


def _same(benchmark: Benchmark) -> list[Verdict]:
    """Whether the recipe `paper` has the paper's settings."""
    if benchmark.name not in PAPER_BENCHMARKS:
        return []
    config = resolve(benchmark.dataset, "classnorm", "paper")[1].as_dict()
    expected = {label: float(published("hyperparameters")[label].cells[benchmark.name]) for label in _FIELDS}
    differing = [label for label, value in expected.items() if float(config[_FIELDS[label]]) != value]
    return [
        Verdict(
            "The recipe `paper` has the paper's settings",
            benchmark.label,
            ", ".join(differing) or "all the same",
            "does not hold" if differing else "holds",
        )
    ]
