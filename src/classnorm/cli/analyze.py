"""`classnorm analyze`: the paper's diagnostics on any data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from classnorm.analysis import attribute_statistics
from classnorm.analysis.advice import attribute_advice, smoothness_advice, variance_advice
from classnorm.cli.console import notice, print_json, print_table, stage_progress
from classnorm.cli.flags import as_flags
from classnorm.cli.options import DataOptions, OutputOptions, parse
from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.experiments.diagnoses.attribute_distribution import correlations, histograms, normality
from classnorm.experiments.diagnoses.diagnosis import Diagnosis, diagnose
from classnorm.experiments.diagnoses.logit_variance import variance_artifact, variance_tasks
from classnorm.experiments.diagnoses.loss_smoothness import mean_gradient_norms, smoothness_artifact, smoothness_tasks
from classnorm.experiments.engine import Engine
from classnorm.report.artifacts import write_artifact
from classnorm.report.tables import rich_table
from classnorm.results.artifact import Artifact

Key = TypeVar("Key")


@dataclass(frozen=True, kw_only=True)
class Options:
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = "glyphs-light"
    """Dataset, as for train."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for tables, plots and data.json (default: runs/DATASET/analyze-KIND)."""
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def diagnose(self, dataset: ZeroShotDataset, folder: Path) -> tuple[list[Artifact], list[str]]:
        """Tables, plots and data, and advice in plain words."""
        raise NotImplementedError

    def run(self, kind: str) -> None:
        dataset = self.source.load(self.data)
        out = self.out or Path("runs") / dataset.name / f"analyze-{kind}"
        for text in dataset.notices:
            notice(text, self.output.quiet)
        artifacts, verdict = self.diagnose(dataset, out / "runs")
        advice = [as_flags(line) for line in verdict]
        plots = [plot for artifact in artifacts for plot in artifact.plots]
        summary = Artifact(
            f"analyze-{kind}",
            f"{dataset.name}: {kind}",
            " ".join(advice),
            tables=[table for artifact in artifacts for table in artifact.tables],
            plots=plots,
            notes=artifacts[0].notes,
            data={"verdict": advice} | {artifact.name: artifact.data for artifact in artifacts},
        )
        write_artifact(summary, out)
        if self.output.json:
            document = {"dataset": dataset.name, "kind": kind, "verdict": advice, "data": summary.data}
            print_json({**document, "out": str(out)})
            return
        for table in summary.tables:
            print_table(rich_table(table))
        print("\n".join(advice))
        print(f"plots: {', '.join(str(out / f'{plot.name}.png') for plot in plots)}")

    def _numbers(self, what: str, tasks: Mapping[Key, Diagnosis], folder: Path, jobs: int) -> dict[Key, Any]:
        with stage_progress(what, self.output.quiet) as progress:
            return diagnose(tasks, folder, Engine(jobs=jobs), progress)


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

    def diagnose(self, dataset: ZeroShotDataset, folder: Path) -> tuple[list[Artifact], list[str]]:
        tasks = variance_tasks(
            _label(dataset),
            dataset,
            seeds=_positive("seeds", self.seeds),
            iterations=_positive("iterations", self.iterations),
        )
        numbers = self._numbers("variance", tasks, folder, self.jobs)
        return [variance_artifact(numbers)], variance_advice(dataset)[0]


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

    def diagnose(self, dataset: ZeroShotDataset, folder: Path) -> tuple[list[Artifact], list[str]]:
        label = _label(dataset)
        tasks = smoothness_tasks(
            label,
            dataset,
            seeds=_positive("seeds", self.seeds),
            iterations=_positive("iterations", self.iterations),
            every=_positive("every", self.every),
            width=_positive("hidden", self.hidden),
        )
        numbers = self._numbers("smoothness", tasks, folder, self.jobs)
        return [smoothness_artifact(numbers, self.every)], smoothness_advice(mean_gradient_norms(numbers)[label])


@dataclass(frozen=True, kw_only=True)
class Attributes(Options):
    """Are the class descriptors normal and independent? Tests, correlations and histograms.

    Example:
      classnorm analyze attributes xlsa17/data/CUB --features res101 --attributes original_att
    """

    def diagnose(self, dataset: ZeroShotDataset, folder: Path) -> tuple[list[Artifact], list[str]]:
        statistics = attribute_statistics(dataset.descriptors)
        artifacts = [make({dataset.name: statistics}) for make in (normality, correlations, histograms)]
        return artifacts, attribute_advice(statistics)


_KINDS: dict[str, type[Options]] = {"variance": Variance, "smoothness": Smoothness, "attributes": Attributes}


def _label(dataset: ZeroShotDataset) -> str:
    return f"{dataset.name} ({dataset.provenance.get('features', 'own')})"


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"--{name} is {value}; it must be at least 1")
    return value


def main(arguments: Sequence[str], program: str) -> None:
    kind = program.split()[-1]
    options: Any = parse(_KINDS[kind], arguments, program)
    options.run(kind)
