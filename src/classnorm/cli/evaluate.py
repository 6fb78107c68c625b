"""`classnorm evaluate`: score a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
import tyro

from classnorm.cli.console import print_json, print_table
from classnorm.cli.model_command import InputCommand
from classnorm.cli.options import DataOptions, OutputOptions, optional
from classnorm.data import ZeroShotDataset
from classnorm.data.bundles import is_folder_bundle
from classnorm.data.image_table import ImageTable
from classnorm.data.images import find_images
from classnorm.data.names import match_names
from classnorm.errors import DataError
from classnorm.metrics import BestScores, Calibration, calibrated_gzsl_scores, calibrated_predictions
from classnorm.report import SCORES, rich_table
from classnorm.results.artifact import Table
from classnorm.results.numbers import json_number, number_text
from classnorm.runs.job import dataset_record

if TYPE_CHECKING:
    from classnorm.scoring import Scorer


_DATA = (
    "A dataset, as for train; or labelled images: a folder per class, or a .csv file with the columns path and label."
)


@dataclass(frozen=True, kw_only=True)
class Evaluate(InputCommand):
    """Score a saved model on the test rows of a dataset, or on all images of a folder; classes are matched by name.

    Examples:
      classnorm evaluate runs/glyphs/classnorm-reference/seed-0 glyphs
      classnorm evaluate runs/mine/seed-0 other.npz --average sample --json
      classnorm evaluate runs/animals/seed-0 new_photos
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA|IMAGES", help=_DATA)]
    average: Literal["class", "sample"] = "class"
    """Average the accuracy over classes, as is usual in zero-shot learning, or over samples."""
    calibration: Annotated[str | None, optional("SPEC")] = None
    """Replace the calibration of the model: none, scale:S or bias:B."""
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        calibration = None if self.calibration is None else Calibration.parse(self.calibration)
        path = Path(self.data)
        table = find_images(path) if _has_images(path) else None
        dataset = self.dataset.load(self.data) if table is None else None
        if table is not None:
            self.encoding.check([path])
        scorer = self.load()
        if calibration is not None:
            scorer = scorer.calibrated(calibration)
        if table is not None:
            self._score_images(scorer, table)
            return
        assert dataset is not None
        scorer = _for_dataset(scorer, dataset)
        rows = dataset.test_rows
        best_scores = scorer.best_scores(dataset.view(rows), dataset.labels[rows], self.average)
        self._print(scorer, best_scores, dataset.name, {"dataset": dataset_record(dataset)})

    def _score_images(self, scorer: Scorer, table: ImageTable) -> None:
        """Score all images that can be read."""
        present = np.unique(table.labels)
        names = [table.class_names[c] for c in present]
        positions = match_names(names, self.data, scorer.class_names, str(self.model))
        images = dict(zip(table.files, cast(Sequence[Path], table.images), strict=True))
        inputs = self.encode(images, self.data)
        if inputs.features.shape[1] != scorer.d_z:
            raise DataError(
                f"{self.data}: features have {inputs.features.shape[1]} dimensions; the model was trained on "
                f"{scorer.d_z}; set `encoder`"
            )
        label = dict(zip(table.files, np.searchsorted(present, table.labels), strict=True))
        read = cast(list[str], inputs.names)
        labels = np.array([positions[label[name]] for name in read])
        best_scores = scorer.best_scores(inputs.features, labels, self.average)
        right = calibrated_predictions(best_scores, scorer.calibration) == labels
        classes = [
            {
                "class": scorer.class_names[c],
                "kind": scorer.classes.kinds[c],
                "images": int((labels == c).sum()),
                "right": int(right[labels == c].sum()),
            }
            for c in positions
        ]
        skipped = sorted(set(images) - set(read))
        counts = {"images": len(read), "right": int(right.sum()), "skipped": skipped, "classes": classes}
        self._print(scorer, best_scores, self.data, counts)
        if self.output.json:
            return
        table_rows = [[str(cell) for cell in row.values()] for row in classes]
        print_table(rich_table(Table.of("images by class", ["class", "kind", "images", "right"], table_rows)))
        n_seen = int(best_scores.is_seen.sum())
        rest = f"; {len(skipped)} could not be read" if skipped else ""
        print(
            f"{right.sum()} of {len(read)} images right; {n_seen} are of seen, {len(read) - n_seen} of unseen "
            f"classes{rest}"
        )

    def _print(self, scorer: Scorer, best_scores: BestScores, name: str, facts: dict[str, Any]) -> None:
        scores = calibrated_gzsl_scores(best_scores, scorer.calibration)
        if self.output.json:
            print_json(
                {
                    "model": str(self.model),
                    **facts,
                    "method": scorer.method,
                    "calibration": str(scorer.calibration),
                    "average": self.average,
                    "transductive": scorer.is_transductive,
                    "scores": {name: json_number(scores[name]) for name in scores},
                }
            )
            return
        header = [title for title, _ in SCORES.values()]
        row = [number_text(scores[name]) for name in SCORES]
        print_table(rich_table(Table.of(f"{self.model} on {name}, percent", header, [row])))
        print(f"averaged over {'classes' if self.average == 'class' else 'samples'}; calibration: {scorer.calibration}")
        if scorer.is_transductive:
            print(
                "transductive: the model has seen unlabelled pictures; compare only with others that have seen the same"
            )


def _has_images(path: Path) -> bool:
    """Whether a source is a folder or list of labelled images, not a dataset."""
    if path.is_dir():
        return not is_folder_bundle(path) and not any(path.glob("*.mat"))
    return path.suffix.lower() == ".csv"


def _for_dataset(scorer: Scorer, dataset: ZeroShotDataset) -> Scorer:
    """The scorer with the classes of the dataset, in its order; seen are those that the model was trained on."""
    if dataset.d_z != scorer.d_z:
        dimensions = f"features have {dataset.d_z} dimensions; the model was trained on {scorer.d_z}"
        raise DataError(f"{dataset.name}: {dimensions}")
    if not set(dataset.class_names) & set(scorer.class_names):
        raise DataError(f"{dataset.name}: shares no class name with the model; it is another dataset")
    table = dict(zip(dataset.class_names, dataset.descriptors, strict=True))
    return scorer.add_classes(table, dataset.name).only(dataset.class_names)
