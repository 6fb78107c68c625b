"""The paper's figures, and the datasets and diagnoses that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from classnorm import progress
from classnorm.data import ZeroShotDataset, simulate
from classnorm.registry import Lazy
from classnorm_lab.diagnoses.diagnosis import Diagnosis, diagnose
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.published import PAPER_DATASETS
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding


@dataclass(frozen=True)
class FigureSpec:
    """A figure of the paper."""

    name: str
    title: str
    conclusion: str
    """What the paper concludes from it."""
    measure: Callable[[Reproduction], dict[str, Any]]
    """Returns the numbers, as JSON."""
    draw: Callable[[Mapping[str, Any]], Finding]
    """Draws the numbers; the name, title and text of the figure come from this specification."""
    needs_features: bool
    """Whether it needs real features; others simulate them, or need attributes only."""
    kind: ClassVar = "figure"

    def present(self, numbers: Mapping[str, Any]) -> Finding:
        return replace(self.draw(numbers), name=self.name, title=self.title, text=self.conclusion, data=dict(numbers))


@dataclass(frozen=True)
class Sample:
    """Data for a figure: an available dataset, or real attributes with simulated features."""

    label: str
    dataset: ZeroShotDataset
    seeds: int
    is_real: bool


def samples(reproduction: Reproduction) -> tuple[list[Sample], list[str]]:
    """Data for a figure, and notes on what is not among them. Simulated data have one seed."""
    real, simulated = [], []
    for paper_dataset in reproduction.datasets:
        if not paper_dataset.missing:
            real.append(Sample(paper_dataset.label, paper_dataset.dataset, reproduction.effort.seeds, True))
        elif paper_dataset.folder:
            dataset = simulate(paper_dataset.folder)
            simulated.append((paper_dataset.name, dataset.descriptors, Sample(dataset.name, dataset, 1, False)))
    kept, notes = without_repeats(simulated)
    absent = [b.setting.missing for b in reproduction.datasets if b.missing and not b.folder]
    return [*real, *kept], notes + absent


Entry = TypeVar("Entry")


def without_repeats(entries: Sequence[tuple[str, npt.ArrayLike, Entry]]) -> tuple[list[Entry], list[str]]:
    """The entries (dataset, attributes, entry) whose attributes no earlier one has, and notes on the others."""
    kept: list[tuple[str, npt.ArrayLike, Entry]] = []
    notes = []
    for name, attributes, entry in entries:
        same = next((other for other, known, _ in kept if np.array_equal(known, attributes)), None)
        if same is None:
            kept.append((name, attributes, entry))
        else:
            notes.append(f"{name} has the attributes of {same}, so it is counted once.")
    return [entry for _, _, entry in kept], notes


Key = TypeVar("Key", bound=tuple[Any, ...])


def run_diagnoses(reproduction: Reproduction, stage: str, tasks: Mapping[Key, Diagnosis]) -> dict[Key, Any]:
    """Run the diagnoses that are not finished, and return the numbers of all."""
    with progress.stage(stage):
        return diagnose(tasks, reproduction.runs, reproduction.engine)


def records(summaries: Mapping[Key, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summaries by key, as JSON."""
    return [{"key": list(key), **summary} for key, summary in summaries.items()]


def keyed(documents: Sequence[Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    """The inverse of `records`."""
    return {tuple(d["key"]): {name: value for name, value in d.items() if name != "key"} for d in documents}


def datasets_and_apy(reproduction: Reproduction) -> list[PaperDataset]:
    """The datasets and aPY, which the paper uses only in its figures of attributes."""
    paper = [b for b in reproduction.datasets if isinstance(b.source, Path) and b.name in PAPER_DATASETS]
    folders = dict.fromkeys(Path(paper_dataset.source).parent / "APY" for paper_dataset in paper)
    apy = [PaperDataset("APY", folder, missing=f"APY: put res101.mat into {folder}") for folder in folders]
    return [*reproduction.datasets, *apy]


# Each is imported when it is measured or drawn: some need PyTorch.
_SPECS = (
    FigureSpec(
        "variance",
        "Variance of the logits in training, with and without NS, AN and CN",
        "Without NS and AN, the variance of a linear model diverges; NS and AN bring it to 1. In deeper models they no "
        "longer suffice and the variance vanishes; class normalization restores it to 1.",
        Lazy("classnorm_lab.paper.variance_figures", "measure_variance"),
        Lazy("classnorm_lab.paper.variance_figures", "variance"),
        needs_features=False,
    ),
    FigureSpec(
        "variance-formula",
        "The variance formula of normalize+scale",
        "Despite its assumptions, the formula is accurate on synthetic vectors and on real features and attributes.",
        Lazy("classnorm_lab.paper.variance_figures", "measure_formula"),
        Lazy("classnorm_lab.paper.variance_figures", "variance_formula"),
        needs_features=False,
    ),
    FigureSpec(
        "smoothness",
        "Smoothness of the loss surface",
        "Zero-shot embedders have a rougher loss surface than classifiers; class normalization makes it smoother.",
        Lazy("classnorm_lab.paper.smoothness_figure", "measure_smoothness"),
        Lazy("classnorm_lab.paper.smoothness_figure", "smoothness"),
        needs_features=False,
    ),
    FigureSpec(
        "seen-scales",
        "Scores against the scale of the seen logits",
        "A scale below 1 trades seen for unseen accuracy; the best scale is 0.95 on SUN, AwA1 and AwA2, and 1 on CUB.",
        Lazy("classnorm_lab.paper.seen_scales_figure", "measure_seen_scales"),
        Lazy("classnorm_lab.paper.seen_scales_figure", "seen_scales"),
        needs_features=True,
    ),
    FigureSpec(
        "normality",
        "Normality test of the attributes",
        "Attributes do not follow a normal distribution.",
        Lazy("classnorm_lab.paper.attribute_figures", "measure_attributes"),
        Lazy("classnorm_lab.paper.attribute_figures", "normality"),
        needs_features=False,
    ),
    FigureSpec(
        "correlations",
        "Correlations between attributes",
        "Attributes are not independent of each other.",
        Lazy("classnorm_lab.paper.attribute_figures", "measure_attributes"),
        Lazy("classnorm_lab.paper.attribute_figures", "correlations"),
        needs_features=False,
    ),
    FigureSpec(
        "histograms",
        "Histograms of standardized attributes",
        "Standardized attributes are long-tailed and skewed, far from normal.",
        Lazy("classnorm_lab.paper.attribute_figures", "measure_attributes"),
        Lazy("classnorm_lab.paper.attribute_figures", "histograms"),
        needs_features=False,
    ),
)
FIGURES: dict[str, FigureSpec] = {spec.name: spec for spec in _SPECS}
