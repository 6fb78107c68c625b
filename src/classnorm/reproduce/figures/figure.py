"""The specification of a figure, its datasets, and the diagnoses that figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from classnorm.data import ZeroShotDataset, simulate
from classnorm.experiments.diagnoses.diagnosis import Diagnosis, diagnose
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.published import PAPER_BENCHMARKS
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact

__all__ = ["FigureSpec", "Sample", "benchmarks_and_apy", "run_diagnoses", "samples"]


@dataclass(frozen=True)
class FigureSpec:
    """A figure of the paper."""

    name: str
    title: str
    conclusion: str
    """What the paper concludes from it."""
    measure: Callable[[Reproduction], Artifact]
    """Returns the measured figure; its name, title and text come from this specification."""

    def make(self, reproduction: Reproduction) -> Artifact:
        return replace(self.measure(reproduction), name=self.name, title=self.title, text=self.conclusion)


@dataclass(frozen=True)
class Sample:
    """Data for a figure: an available dataset, or real attributes with simulated features."""

    label: str
    dataset: ZeroShotDataset
    seeds: int
    is_real: bool


def samples(reproduction: Reproduction) -> Iterator[Sample]:
    for benchmark in reproduction.benchmarks:
        if not benchmark.missing:
            yield Sample(benchmark.label, benchmark.dataset, reproduction.effort.seeds, True)
        elif benchmark.folder:
            dataset = simulate(benchmark.folder)
            yield Sample(dataset.name, dataset, 1, False)


Key = TypeVar("Key")


def run_diagnoses(reproduction: Reproduction, stage: str, tasks: Mapping[Key, Diagnosis]) -> dict[Key, Any]:
    """Run the diagnoses that are not finished, and return the numbers of all."""
    return diagnose(tasks, reproduction.runs, reproduction.engine, reproduction.announce(stage))


def benchmarks_and_apy(reproduction: Reproduction) -> list[Benchmark]:
    """The benchmarks and aPY, which the paper uses only in its figures of attributes."""
    paper = [b for b in reproduction.benchmarks if isinstance(b.source, Path) and b.name in PAPER_BENCHMARKS]
    folders = dict.fromkeys(Path(benchmark.source).parent / "APY" for benchmark in paper)
    apy = [Benchmark("APY", folder, missing=f"APY: put res101.mat into {folder}") for folder in folders]
    return [*reproduction.benchmarks, *apy]
