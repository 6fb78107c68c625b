"""`classnorm analyze`: the paper's diagnostics on any data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from classnorm import analysis
from classnorm.analysis.advice import attribute_advice, smoothness_advice, variance_advice
from classnorm.cli.console import notice, print_json, print_table, stage_progress
from classnorm.cli.flags import as_flags
from classnorm.cli.options import DataOptions, OutputOptions, parse
from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.experiments.engine import Engine
from classnorm.report.artifacts import write_artifact
from classnorm.report.tables import rich_table
from classnorm.reproduce.benchmarks import Column
from classnorm.reproduce.figures import FIGURES
from classnorm.reproduce.reproduction import Effort, Workshop
from classnorm.results.artifact import Artifact


@dataclass(frozen=True, kw_only=True)
class Options:
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = "glyphs-light"
    """Dataset, as for train."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for tables, plots and data.json (default: runs/DATASET/analyze-KIND)."""
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    @property
    def effort(self) -> Effort:
        return Effort(seeds=1)

    @property
    def engine(self) -> Engine:
        return Engine()

    def run(self, kind: str) -> None:
        dataset = self.source.load(self.data)
        out = self.out or Path("runs") / dataset.name / f"analyze-{kind}"
        for text in dataset.notices:
            notice(text, self.output.quiet)
        workshop = Workshop(
            [Column(dataset.name, self.data, dataset.provenance.get("features", "own"), loaded=dataset)],
            self.effort,
            self.engine,
            out,
            lambda what: stage_progress(what, self.output.quiet),
        )
        artifacts = [FIGURES[name].make(workshop) for name in _FIGURES[kind]]
        advice = [as_flags(line) for line in _advice(kind, dataset, artifacts)]
        plots = [plot for artifact in artifacts for plot in artifact.plots]
        own = Artifact(
            f"analyze-{kind}",
            f"{dataset.name}: {kind}",
            " ".join(advice),
            tables=[table for artifact in artifacts for table in artifact.tables],
            plots=plots,
            notes=artifacts[0].notes,
            data={"verdict": advice} | {artifact.name: artifact.data for artifact in artifacts},
        )
        write_artifact(own, out)
        if self.output.json:
            print_json({"dataset": dataset.name, "kind": kind, "verdict": advice, "data": own.data, "out": str(out)})
            return
        for table in own.tables:
            print_table(rich_table(table))
        print("\n".join(advice))
        print(f"plots: {', '.join(str(out / f'{plot.name}.png') for plot in plots)}")


@dataclass(frozen=True, kw_only=True)
class Variance(Options):
    """Variance of the logits at initialisation and in training, with and without NS, AN and CN.

    Example:
      classnorm analyze variance mine.npz
    """

    seeds: int = 3
    """Trainings of each model."""
    iterations: int = 300
    """Iterations of each training."""
    jobs: int = 0
    """Trainings at a time; 0 is one per core."""

    @property
    def effort(self) -> Effort:
        return Effort(
            seeds=_positive("seeds", self.seeds), variance_iterations=_positive("iterations", self.iterations)
        )

    @property
    def engine(self) -> Engine:
        return Engine(jobs=self.jobs)


@dataclass(frozen=True, kw_only=True)
class Smoothness(Options):
    """Smoothness of the loss surface: gradient norms of an MLP classifier and of the zero-shot MLP without and with CN.

    Example:
      classnorm analyze smoothness xlsa17/data/CUB --iterations 500
    """

    seeds: int = 1
    """Trainings of each model."""
    iterations: int = 2500
    """Iterations of each training."""
    every: int = 25
    """Iterations between two measurements."""
    hidden: int = 1024
    """Width of the hidden layers."""
    jobs: int = 0
    """Trainings at a time; 0 is one per core."""

    @property
    def effort(self) -> Effort:
        return Effort(
            seeds=_positive("seeds", self.seeds),
            smoothness_iterations=_positive("iterations", self.iterations),
            smoothness_every=_positive("every", self.every),
            smoothness_width=_positive("hidden", self.hidden),
        )

    @property
    def engine(self) -> Engine:
        return Engine(jobs=self.jobs)


@dataclass(frozen=True, kw_only=True)
class Attributes(Options):
    """Are the class descriptors normal and independent? Tests, correlations and histograms.

    Example:
      classnorm analyze attributes xlsa17/data/CUB --features res101 --attributes original_att
    """


_KINDS: dict[str, type[Options]] = {"variance": Variance, "smoothness": Smoothness, "attributes": Attributes}
_FIGURES = {
    "variance": ("variance",),
    "smoothness": ("smoothness",),
    "attributes": ("normality", "correlations", "histograms"),
}


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"--{name} is {value}; it must be at least 1")
    return value


def _advice(kind: str, dataset: ZeroShotDataset, artifacts: Sequence[Artifact]) -> list[str]:
    if kind == "variance":
        return variance_advice(dataset)[0]
    if kind == "attributes":
        return attribute_advice(analysis.attribute_statistics(dataset.descriptors))
    norms: dict[str, list[float]] = {}
    for key, values in artifacts[0].data["smoothness"].items():
        norms.setdefault(key.split(" | ")[1], []).append(float(np.mean(values)))
    return smoothness_advice(norms)


def main(arguments: Sequence[str], program: str) -> None:
    kind = program.split()[-1]
    options: Any = parse(_KINDS[kind], arguments, program)
    options.run(kind)
