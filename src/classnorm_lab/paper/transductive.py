"""Models that have seen the test pictures without their labels: rows of their own, never beside inductive ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from classnorm.errors import ModelWarning
from classnorm.io.files import digest
from classnorm.report.summary import SCORES
from classnorm.results.artifact import Table
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import Result
from classnorm.runs.experiment import Experiment, score
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.measured import Measured, SeedRuns
from classnorm_lab.paper.reproduction import Reproduction

NOTE = (
    "Transductive tables: the trained model with the settings of its recipe, not searched, learns from the features of "
    "all test rows without their labels (`Scorer.adapt`). Its scores are not comparable to those of any other table. "
    "If validation finds that this would not help, the model is left as it is."
)
_BEFORE = "before "


def measure_transductive(reproduction: Reproduction, methods: Mapping[str, str]) -> list[dict[str, Any]]:
    """Train, adapt to the test rows and score, on every available dataset.

    Args:
        methods: label → method, with its recipe `reference`.

    Returns:
        Runs as `Measured` stores them.
    """
    runs = {
        (label, paper_dataset.name): found
        for paper_dataset in reproduction.available
        for label, method in methods.items()
        if (found := _runs(reproduction, paper_dataset, label, method)) is not None
    }
    stored: list[dict[str, Any]] = Measured([], runs).as_dict()["runs"]
    return stored


def _runs(reproduction: Reproduction, paper_dataset: PaperDataset, label: str, method: str) -> SeedRuns | None:
    """The runs of a method; None if the time is up."""
    config = reproduction.recipe(paper_dataset, method, "reference")
    seeds = reproduction.seeds(paper_dataset)
    experiments = [Experiment(paper_dataset.dataset, method, label, config, seed) for seed in seeds]
    key = digest(["transductive", *(experiment.key for experiment in experiments)])[:16]
    if key in reproduction.known:
        return reproduction.known[key]
    if reproduction.time_is_up:
        return None
    results = reproduction.run(f"{paper_dataset.name}, {label}, transductive", {label: experiments})[label]
    documents = [_numbers(result, paper_dataset) for result in results if result is not None]
    return SeedRuns({name: [document[name] for document in documents] for name in documents[0]}, key=key)


def _numbers(result: Result, paper_dataset: PaperDataset) -> dict[str, float | None]:
    from classnorm.scoring import Scorer  # PyTorch

    data, scorer = paper_dataset.dataset, Scorer.load(result.folder, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # that validation advises against it
        adapted = scorer.adapt(data.view(data.test_rows))
    _, scores = score(adapted, data)
    before = {f"{_BEFORE}{name}": result.scores[name] for name in SCORES}
    numbers = {name: scores[name] for name in SCORES} | before | {"adapted": float(adapted is not scorer)}
    return {name: json_number(value) for name, value in numbers.items()}


def transductive_tables(data: Mapping[str, Any]) -> Sequence[Table]:
    """A table for each paper_dataset; none for numbers of earlier versions."""
    measured = Measured.of({"settings": data["settings"], "runs": data.get("transductive", ())})
    tables = []
    for setting in measured.available:
        rows = {label: runs for (label, name), runs in measured.runs.items() if name == setting.name}
        body = [
            [
                label,
                *(runs.cell(name, spread=name == "harmonic") for name in SCORES),
                *(runs.cell(f"{_BEFORE}{name}", spread=False) for name in ("harmonic", "zsl")),
                f"{runs.mean('adapted') * runs.n:.0f} of {runs.n}",
            ]
            for label, runs in rows.items()
        ]
        title = f"{setting.label}, transductive: has seen the unlabelled test pictures; percent, mean ± std over seeds"
        header = ["method", *(short for short, _ in SCORES.values()), "H before", "T1 before", "adapted"]
        tables += [Table.of(title, header, body)] if body else []
    return tables
