"""`classnorm predict`: classify images or features."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from classnorm.cli.console import print_json
from classnorm.cli.model_command import InputCommand, InputsArgument, with_new_classes
from classnorm.cli.options import OutputOptions, optional
from classnorm.data.row_store import RowStore, row_blocks
from classnorm.errors import ConfigError
from classnorm.io.escapes import csv_cells
from classnorm.io.files import replacing, write_json
from classnorm.progress import notice
from classnorm.settings import check_positive, check_share

if TYPE_CHECKING:
    from classnorm.scoring import Scorer

_BLOCK = 1 << 14  # rows of a folder bundle classified at a time
_UNKNOWN = {"class": "unknown", "score": None, "probability": None, "kind": "unknown"}


@dataclass(frozen=True, kw_only=True)
class Predict(InputCommand):
    """Classify images or features, also into new classes with a descriptor.

    Examples:
      classnorm predict runs/mine/seed-0 photos --top 3 --out answers.csv
      classnorm predict runs/mine/seed-0 *.jpg --top 3
      classnorm predict runs/mine/seed-0 features.npy
      classnorm predict runs/mine/seed-0 features.npy --descriptors new_classes.csv --top 3
      classnorm predict runs/mine/seed-0 photos --examples a_few_labelled_photos
      classnorm predict runs/mine/seed-0 features.parquet --only okapi zebra --json
      classnorm predict runs/mine/seed-0 features.npy --top 5 --block-mb 16
      classnorm predict runs/mine/seed-0 photos --reject 0.05 --coverage 0.9

    Notes:
      Prints CSV: row or image, rank, class, score, probability, and kind (seen or
      unseen). Scores are calibrated; higher is better. Probabilities sum to 1 over
      all competing classes. Images are encoded like those that the model was
      trained on. With --reject, the column known is False for images of no known class;
      their first answer is unknown, without score and probability. With --coverage, the
      column set has the classes that may be right, best first, separated by |.
    """

    inputs: InputsArgument
    descriptors: Annotated[Path | None, optional("FILE")] = None
    """New classes: .csv, .parquet, .json, .npy (names in a .txt file beside it), .npz of classnorm describe, or text
    like that of train --descriptions, if the model was trained with text."""
    examples: Annotated[Path | None, optional("FOLDER|NPZ")] = None
    """A few labelled pictures that correct the model: a folder per class, or an .npz file with features and labels
    (class names)."""
    only: Annotated[tuple[str, ...], optional("NAME…")] = ()
    """Choose among these classes only."""
    top: int = 1
    """Number of classes per row, best first."""
    reject: Annotated[float | None, optional("SHARE")] = None
    """Answer unknown for images of no known class; this share of the images of known classes may be rejected."""
    coverage: Annotated[float | None, optional("P")] = None
    """Add the smallest set of classes that holds the right one with this probability, for example 0.9."""
    out: Annotated[Path | None, optional("FILE")] = None
    """Write to this .csv or .json file instead of stdout."""
    block_mb: Annotated[int, tyro.conf.arg(metavar="MB")] = 64
    """Size of the blocks in which scores are computed; smaller ones are slower."""
    output: OutputOptions

    def run(self) -> None:
        check_positive(top=self.top, block_mb=self.block_mb)
        check_share(reject=self.reject, coverage=self.coverage)
        if self.out is not None and self.out.suffix not in (".csv", ".json"):
            raise ConfigError(f"--out {self.out}: must end in .csv or .json")
        self.encoding.check(self.inputs)
        scorer = replace(self.load(), block_bytes=self.block_mb << 20)
        if self.descriptors is not None:
            scorer = with_new_classes(scorer, self.descriptors)
        if self.examples is not None:
            scorer = self.with_examples(scorer, self.examples)
        if self.only:
            scorer = scorer.only(self.only)
        scorer.check_question(self.reject, self.coverage)  # find out before images are encoded
        names, features = self.read(self.inputs, scorer.d_z, may_be_empty=True)
        columns = ["row" if names is None else "image", "rank", "class", "score", "probability", "kind"]
        columns += [name for name, value in (("known", self.reject), ("set", self.coverage)) if value is not None]
        predictions: Iterable[dict[str, Any]] = _best(scorer, features, self, names)
        if self.output.json or (self.out is not None and self.out.suffix == ".json"):
            predictions = list(predictions)
        if self.out is not None:
            if self.out.suffix == ".json":
                write_json(self.out, predictions)
            else:
                with replacing(self.out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
                    _write_csv(predictions, file, columns)
            notice(f"wrote {self.out}")
        if self.output.json:
            print_json(predictions)
        elif self.out is None:
            _write_csv(predictions, sys.stdout, columns)


def _best(scorer: Scorer, features: Any, request: Predict, names: list[str] | None) -> Iterator[dict[str, Any]]:
    """The best classes of each row, best first; rows in files are read block by block."""
    threshold = None if request.reject is None else scorer.novelty_threshold(request.reject)
    for part, block in row_blocks(features, _BLOCK if isinstance(features, RowStore) else max(1, len(features))):
        found = scorer.answers(block, request.top, threshold is not None, request.coverage)
        known = None if threshold is None or found.novelty is None else found.novelty <= threshold
        for row, best in enumerate(found.named(scorer.class_names, scorer.classes.kinds)):
            answers: list[dict[str, Any]] = [
                {
                    "class": answer.name,
                    "score": round(answer.score, 4),
                    "probability": round(answer.probability, 6),
                    "kind": answer.kind,
                }
                for answer in best
            ]
            if known is not None and not known[row]:
                answers = [_UNKNOWN, *answers[:-1]]
            for rank, answer in enumerate(answers):
                yield {
                    **({"row": part.start + row} if names is None else {"image": names[row]}),
                    "rank": rank + 1,
                    **answer,
                    **({} if known is None else {"known": bool(known[row])}),
                    **({} if found.sets is None else {"set": [scorer.class_names[c] for c in found.sets[row]]}),
                }


def _write_csv(predictions: Iterable[dict[str, Any]], file: Any, columns: list[str]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in predictions:
        cells = row | ({"set": "|".join(row["set"])} if "set" in row else {})
        writer.writerow(csv_cells(cells[name] for name in columns))
