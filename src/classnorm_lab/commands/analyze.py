"""`classnorm analyze`: the diagnostics of the paper on any dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from classnorm.cli.console import print_json, print_table
from classnorm.cli.messages import as_flags
from classnorm.cli.options import Command, DataArgument, DataOptions, OutputOptions, optional
from classnorm.data import ZeroShotDataset
from classnorm.io.escapes import file_name
from classnorm.progress import stage
from classnorm.report.files import write_artifact
from classnorm.report.tables import rich_table
from classnorm.results.artifact import Artifact
from classnorm.runs.engine import Engine
from classnorm.settings import check_positive
from classnorm_lab.diagnoses.attributes import (
    attribute_advice,
    attribute_statistics,
    correlations,
    histograms,
    normality,
)
from classnorm_lab.diagnoses.diagnosis import Diagnosis, diagnose

Key = TypeVar("Key")


@dataclass(frozen=True, kw_only=True)
class Options(Command):
    to_continue = "run the same command again"

    data: DataArgument = "glyphs-light"
    out: Annotated[Path | None, optional("DIR")] = None
    """Folder for tables, plots and data.json (default: runs/DATASET/analyze-KIND)."""
    dataset: DataOptions
    output: OutputOptions

    def diagnose(self, dataset: ZeroShotDataset, folder: Path) -> tuple[list[Artifact], list[str]]:
        """Tables, plots and data, and advice as sentences."""
        raise NotImplementedError

    def run(self) -> None:
        kind = type(self).__name__.lower()
        check_positive(**{name: getattr(self, name, None) for name in ("seeds", "iterations", "every", "hidden")})
        dataset = self.dataset.load(self.data)
        out = self.out or Path("runs") / file_name(dataset.name) / f"analyze-{kind}"
        artifacts, sentences = self.diagnose(dataset, out / "runs")
        advice = [as_flags(sentence) for sentence in sentences]
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
            print_json(document | {"out": str(out)})
            return
        for table in summary.tables:
            print_table(rich_table(table))
        print("\n".join(advice))
        print(f"plots: {', '.join(str(out / f'{plot.name}.png') for plot in plots)}")

    def _measure(self, kind: str, tasks: Mapping[Key, Diagnosis], folder: Path, jobs: int) -> dict[Key, Any]:
        with stage(kind):
            return diagnose(tasks, folder, Engine(jobs=jobs))


@dataclass(frozen=True, kw_only=True)
class Variance(Options):
    """Measure the variance of the logits at initialisation and during training.

    Examples:
      classnorm analyze variance mine.npz

    Notes:
      Compares models with and without normalize+scale (NS), attribute normalization
      (AN) and class normalization (CN).
    """

    seeds: int = 3
    """Number of trainings per model."""
    iterations: int = 300
    """Iterations per training."""
    jobs: int = 0
    """Number of parallel trainings; 0 is one per core."""

    def diagnose(self, dataset: ZeroShotDataset, folder: Path) -> tuple[list[Artifact], list[str]]:
        from classnorm_lab.diagnoses.variance import (  # PyTorch
            variance_advice,
            variance_artifact,
            variance_summary,
            variance_tasks,
        )

        tasks = variance_tasks(_label(dataset), dataset, seeds=self.seeds, iterations=self.iterations)
        numbers = self._measure("variance", tasks, folder, self.jobs)
        summaries = {key: variance_summary(curves) for key, curves in numbers.items()}
        return [variance_artifact(summaries)], variance_advice(dataset)[0]


@dataclass(frozen=True, kw_only=True)
class Smoothness(Options):
    """Measure the smoothness of the loss surface by the norms of gradients.

    Examples:
      classnorm analyze smoothness xlsa17/data/CUB --iterations 500

    Notes:
      Compares an MLP classifier with the zero-shot MLP without and with class
      normalization (CN).
    """

    seeds: int = 1
    """Number of trainings per model."""
    iterations: int = 2500
    """Iterations per training."""
    every: int = 25
    """Iterations between measurements."""
    hidden: int = 1024
    """Width of the hidden layers."""
    jobs: int = 0
    """Number of parallel trainings; 0 is one per core."""

    def diagnose(self, dataset: ZeroShotDataset, folder: Path) -> tuple[list[Artifact], list[str]]:
        from classnorm_lab.diagnoses.smoothness import (  # PyTorch
            mean_gradient_norms,
            smoothness_advice,
            smoothness_artifact,
            smoothness_summary,
            smoothness_tasks,
        )

        tasks = smoothness_tasks(
            _label(dataset),
            dataset,
            seeds=self.seeds,
            iterations=self.iterations,
            every=self.every,
            width=self.hidden,
        )
        numbers = self._measure("smoothness", tasks, folder, self.jobs)
        summaries = {key: smoothness_summary(norms, self.every) for key, norms in numbers.items()}
        [norms] = mean_gradient_norms(summaries).values()
        return [smoothness_artifact(summaries)], smoothness_advice(norms)


@dataclass(frozen=True, kw_only=True)
class Attributes(Options):
    """Test if the class descriptors are normally distributed and independent.

    Examples:
      classnorm analyze attributes xlsa17/data/CUB --features res101 --attributes original_att
    """

    def diagnose(self, dataset: ZeroShotDataset, folder: Path) -> tuple[list[Artifact], list[str]]:
        statistics = attribute_statistics(dataset.descriptors)
        artifacts = [make({dataset.name: statistics}) for make in (normality, correlations, histograms)]
        return artifacts, attribute_advice(statistics)


def _label(dataset: ZeroShotDataset) -> str:
    return f"{dataset.name} ({dataset.provenance.get('features', 'own')})"
