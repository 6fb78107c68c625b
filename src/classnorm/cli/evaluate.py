"""`classnorm evaluate`: score a saved model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from classnorm.cli.console import print_json, print_table
from classnorm.cli.options import Command, DataArgument, DataOptions, ModelArgument, OutputOptions, optional
from classnorm.cli.run_options import DeviceOption
from classnorm.data import ZeroShotDataset
from classnorm.errors import DataError
from classnorm.experiments.experiment import dataset_record
from classnorm.metrics import Calibration, side_gzsl_scores
from classnorm.report import SCORES, rich_table
from classnorm.results.artifact import Table
from classnorm.results.numbers import json_number, number_text
from classnorm.results.run_folder import model_files

if TYPE_CHECKING:
    from classnorm.scoring import Scorer


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Score a saved model on the test rows of a dataset; classes are matched by name.

    Examples:
      classnorm evaluate runs/glyphs/classnorm-reference/seed-0 glyphs
      classnorm evaluate runs/mine/seed-0 other.npz --average sample --json
    """

    model: ModelArgument
    data: DataArgument
    average: Literal["class", "sample"] = "class"
    """Average the accuracy over classes, as is usual in zero-shot learning, or over samples."""
    calibration: Annotated[str | None, optional("SPEC")] = None
    """Replace the calibration of the model: none, scale:S or bias:B."""
    device: DeviceOption = "auto"
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        calibration = None if self.calibration is None else Calibration.parse(self.calibration)
        model_files(self.model)  # must exist
        dataset = self.dataset.load(self.data, self.output.quiet)
        from classnorm.scoring import Scorer  # PyTorch

        scorer = Scorer.load(self.model, self.device)
        if calibration is not None:
            scorer = scorer.calibrated(calibration)
        scorer = _for_dataset(scorer, dataset)
        rows = dataset.test_rows
        sides = scorer.sides(dataset.view(rows), dataset.labels[rows], self.average)
        scores = side_gzsl_scores(sides, scorer.calibration)
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
        header = [title for title, _ in SCORES.values()]
        row = [number_text(scores[name]) for name in SCORES]
        print_table(rich_table(Table.of(f"{self.model} on {dataset.name}, percent", header, [row])))
        print(f"averaged over {'classes' if self.average == 'class' else 'samples'}; calibration: {scorer.calibration}")


def _for_dataset(scorer: Scorer, dataset: ZeroShotDataset) -> Scorer:
    """The scorer with the classes of the dataset, in its order; seen are those that the model was trained on."""
    if dataset.d_z != scorer.d_z:
        dimensions = f"features have {dataset.d_z} dimensions; the model was trained on {scorer.d_z}"
        raise DataError(f"{dataset.name}: {dimensions}")
    if not set(dataset.class_names) & set(scorer.class_names):
        raise DataError(f"{dataset.name}: shares no class name with the model; it is another dataset")
    table = dict(zip(dataset.class_names, dataset.descriptors, strict=True))
    return scorer.add_classes(table, dataset.name).only(dataset.class_names)
