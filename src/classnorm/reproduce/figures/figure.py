"""What the figures share: their data, their tasks, mean curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from classnorm.data import ZeroShotDataset, simulate
from classnorm.errors import TrainingError
from classnorm.experiments.diagnosis import Diagnosis
from classnorm.reproduce.benchmarks import Column
from classnorm.reproduce.published import BENCHMARKS
from classnorm.reproduce.reproduction import Workshop
from classnorm.results.artifact import Artifact, Series

__all__ = ["FigureSpec", "Sample", "beyond", "diagnose", "mean_series", "missing", "rounded", "samples"]


@dataclass(frozen=True)
class FigureSpec:
    """A figure of the paper."""

    name: str
    title: str
    says: str
    make: Callable[[Workshop], Artifact]


@dataclass(frozen=True)
class Sample:
    """Data for a diagnostic figure: a dataset at hand, or real attributes with simulated features."""

    label: str
    dataset: ZeroShotDataset
    seeds: int
    is_real: bool


def samples(workshop: Workshop) -> Iterator[Sample]:
    for column in workshop.columns:
        if not column.missing:
            yield Sample(column.label, column.dataset, workshop.effort.seeds, True)
        elif column.attributes:
            dataset = simulate(column.attributes)
            yield Sample(dataset.name, dataset, 1, False)


def missing(workshop: Workshop) -> list[str]:
    return [column.missing for column in workshop.columns if column.missing]


def diagnose(workshop: Workshop, what: str, tasks: Sequence[Diagnosis]) -> dict[str, Any]:
    """The numbers of each, by name."""
    failed = workshop.run(what, tasks)
    if failed:
        raise TrainingError(f"{what}: {next(iter(failed.values())).message}")
    return {task.name: task.read(workshop.folder / "runs") for task in tasks}


def mean_series(
    label: str, model: str, variant: str, runs: Sequence[Sequence[float]], start: int = 0, step: int = 1
) -> Series:
    """The mean over seeds, with the range of the seeds; as long as the shortest."""
    length = min(map(len, runs))
    values = np.array([run[:length] for run in runs])
    x = [float(start + step * i) for i in range(length)]
    low, high = (None, None) if len(runs) == 1 else (values.min(axis=0), values.max(axis=0))
    return Series(
        label,
        model,
        x,
        rounded(values.mean(axis=0)),
        None if low is None else rounded(low),
        None if high is None else rounded(high),
        variant,
    )


def rounded(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def beyond(workshop: Workshop) -> list[Column]:
    """aPY, which the paper has in its attribute figures only."""
    folders = {c.source.parent for c in workshop.columns if isinstance(c.source, Path) and c.name in BENCHMARKS}
    return [Column("APY", folder / "APY", missing=f"APY: put res101.mat into {folder / 'APY'}") for folder in folders]
