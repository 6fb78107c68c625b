"""The tables of training times and hyperparameters."""

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
from classnorm.results.numbers import number_text
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["hyperparameters", "training_time"]


def training_time(reproduction: Reproduction) -> Artifact:
    """Seconds of the final training, measured here and as published."""
    sequential = replace(reproduction, engine=Engine(jobs=1), folder=reproduction.folder / "training-time")
    measurements = measure(sequential, "training-time", [CN])
    rows, verdicts = [], []
    for benchmark in reproduction.benchmarks:
        if benchmark.missing:
            rows.append([benchmark.name, "–", "–", "–"])
            continue
        runs = measurements[CN.label, benchmark.name]
        seconds, documents = runs.values("train_seconds"), [result.document for result in runs.finished]
        machine = ", ".join(dict.fromkeys(f"{d['device']}, {d['threads']} threads" for d in documents))
        average = number_text(runs.mean("train_seconds"))
        rows.append([benchmark.label, average, number_text(max(seconds)), machine])
        claim = "The model trains in about a minute (at most 60 s)"
        verdicts.append(Verdict(claim, benchmark.label, f"{average} s", judge_bounds(seconds, high=60.0)))
    title = "Measured here: 3-layer MLP + CN, seconds of the final training"
    paper = "As published: one NVIDIA RTX 2080 Ti, ResNet-101 features; not measured here"
    return Artifact(
        "training-time",
        "Training time",
        "The model trains in 20–30 seconds; other recent methods take from half an hour to several hours.",
        tables=[
            Table.of(title, ["data (features)", "mean", "longest", "machine"], rows),
            published_table("training-time", paper, "method"),
        ],
        verdicts=verdicts,
        notes=["Models are trained one at a time, each with all threads.", *reproduction.missing],
        data={name: runs.values("train_seconds") for (_, name), runs in measurements.items()},
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
    """The paper's settings, and those of the recipes on the available benchmarks."""
    benchmarks = reproduction.available
    recipes = [_recipe_row(benchmark, recipe) for benchmark in benchmarks for recipe in ("paper", "reference")]
    return Artifact(
        "hyperparameters",
        "Hyperparameters",
        "The settings of the paper's runs.",
        tables=[
            published_table("hyperparameters", "In the paper", "setting"),
            Table.of("Recipes here", ["data, recipe", "Hidden layers", *_FIELDS], recipes),
        ],
        verdicts=[_recipe_verdict(benchmark) for benchmark in benchmarks if benchmark.name in PAPER_BENCHMARKS],
        notes=["The recipe `reference` is the authors' released run, which differs from the paper's table."],
    )


def _recipe_row(benchmark: Benchmark, recipe: str) -> Sequence[str]:
    config = resolve(benchmark.dataset, "classnorm", recipe)[1].as_dict()
    return [f"{benchmark.name}, {recipe}", str(config["layers"] - 1), *(f"{config[f]:g}" for f in _FIELDS.values())]


def _recipe_verdict(benchmark: Benchmark) -> Verdict:
    config = resolve(benchmark.dataset, "classnorm", "paper")[1].as_dict()
    printed = {label: float(published("hyperparameters")[label].cells[benchmark.name]) for label in _FIELDS}
    differing = [label for label, value in printed.items() if float(config[_FIELDS[label]]) != value]
    claim, measured = "The recipe `paper` has the paper's settings", ", ".join(differing) or "all equal"
    return Verdict(claim, benchmark.label, measured, "does not hold" if differing else "holds")
