"""`classnorm evaluate`: score a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.table import Table

from classnorm.cli.console import notice, print_json, print_table
from classnorm.cli.options import DataOptions, OutputOptions, parse
from classnorm.data import ZeroShotDataset
from classnorm.errors import DataError
from classnorm.experiments.experiment import dataset_record
from classnorm.metrics import Calibration, gzsl_scores
from classnorm.report import SCORES
from classnorm.results.numbers import json_number, number_text
from classnorm.scoring import Scorer
from classnorm.training import Device


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score a saved model on the test rows of a dataset; classes are joined by name.

    Examples:
      classnorm evaluate runs/glyphs/classnorm-reference/seed-0 glyphs
      classnorm evaluate runs/mine/seed-0 other.npz --average sample --json
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Folder of a run."""
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Dataset, as for train."""
    average: Literal["class", "sample"] = "class"
    """Mean over classes of the per-class accuracy (the field's convention), or share of samples."""
    calibration: Annotated[str | None, tyro.conf.arg(metavar="SPEC", help_behavior_hint="")] = None
    """Instead of the model's own: none, scale:S or bias:B."""
    device: Device = "auto"
    """auto is CUDA where there is one, then MPS, then the CPU."""
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        scorer = Scorer.load(self.model, self.device)
        if self.calibration is not None:
            scorer = scorer.calibrated(Calibration.parse(self.calibration))
        dataset = self.source.load(self.data)
        for text in dataset.notices:
            notice(text, self.output.quiet)
        scorer = _for_dataset(scorer, dataset)
        rows = dataset.test_rows
        scores = gzsl_scores(scorer.scores(dataset.features[rows]), dataset.labels[rows], scorer.seen, self.average)
        if self.output.json:
            print_json(
                {
                    "model": str(self.model),
                    "dataset": dataset_record(dataset),
                    "method": scorer.method,
                    "calibration": str(scorer.calibration),
                    "average": self.average,
                    "scores": {name: json_number(scores[name]) for name in scores},
                }
            )
            return
        table = Table(title=f"{self.model} on {dataset.name}", title_justify="left")
        for title, _ in SCORES.values():
            table.add_column(title, justify="right")
        table.add_row(*(number_text(scores[name]) for name in SCORES))
        table.caption = f"percent, averaged over {self.average}{'es' if self.average == 'class' else 's'}"
        print_table(table)
        print(f"calibration: {scorer.calibration}")


def _for_dataset(scorer: Scorer, dataset: ZeroShotDataset) -> Scorer:
    """The scorer with just the dataset's classes, in its order; what the model learnt stays what counts as seen."""
    if dataset.d_z != scorer.d_z:
        raise DataError(
            f"{dataset.name}: features have {dataset.d_z} dimensions; the model was trained on {scorer.d_z}"
        )
    if not set(dataset.class_names) & set(scorer.class_names):
        raise DataError(f"{dataset.name}: shares no class name with the model; it is another dataset")
    table = dict(zip(dataset.class_names, dataset.descriptors, strict=True))
    return scorer.add_classes(table, dataset.name).only(dataset.class_names)


def main(arguments: Sequence[str], program: str) -> None:
    parse(Evaluate, arguments, program).run()
