"""`classnorm predict`: classify features."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from classnorm.cli.console import notice, print_json
from classnorm.cli.options import OutputOptions, parse
from classnorm.data.tables import read_descriptors, read_features
from classnorm.errors import ConfigError, DataError
from classnorm.files import write_json, write_text
from classnorm.methods import Scorer
from classnorm.training import Device


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Classify rows of features into the model's classes and any others that come with a descriptor.

    Prints CSV (row, rank, class, score, kind), or JSON. Scores are the model's calibrated scores: higher is better.

    Examples:
      classnorm predict runs/mine/seed-0 features.npy
      classnorm predict runs/mine/seed-0 features.npy --descriptors new_classes.csv --top 3
      classnorm predict runs/mine/seed-0 features.parquet --only okapi zebra --json
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Folder of a run."""
    features: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FEATURES")]
    """Rows to classify: .npy, .npz (key features), .mat, .csv or .parquet."""
    descriptors: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """New classes: .csv or .parquet (name, then numbers), .json ({name: numbers}), .npy (names in a .txt beside it)."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…", help_behavior_hint="")] = ()
    """Let only these classes compete."""
    top: int = 1
    """Classes to give for each row, best first."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Write to this file (.csv or .json) instead of stdout."""
    device: Device = "auto"
    """auto is CUDA where there is one, then MPS, then the CPU."""
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        if self.top < 1:
            raise ConfigError(f"--top is {self.top}; it must be at least 1")
        if self.out is not None and self.out.suffix not in (".csv", ".json"):
            raise ConfigError(f"--out {self.out}: write .csv or .json")
        scorer = Scorer.load(self.model, self.device)
        if self.descriptors is not None:
            known = len(scorer.class_names)
            scorer = scorer.add_classes(read_descriptors(self.descriptors), str(self.descriptors))
            notice(f"{len(scorer.class_names) - known} new classes from {self.descriptors}", self.output.quiet)
        if self.only:
            scorer = scorer.only(self.only)
        features = read_features(self.features)
        if features.shape[1] != scorer.d_z:
            raise DataError(
                f"{self.features}: features have {features.shape[1]} dimensions; the model was trained on {scorer.d_z}"
            )
        predictions = best(scorer, features, self.top)
        if self.out is not None and self.out.suffix == ".json":
            write_json(self.out, predictions)
        elif self.out is not None:
            write_text(self.out, as_csv(predictions))
        if self.out is not None:
            notice(f"wrote {self.out}", self.output.quiet)
        if self.output.json:
            print_json(predictions)
        elif self.out is None:
            print(as_csv(predictions), end="")


def best(scorer: Scorer, features: Any, top: int) -> list[dict[str, Any]]:
    """For each row its best classes, best first."""
    scores = scorer.scores(features)
    top = min(top, len(scorer.class_names))
    part = np.argpartition(-scores, top - 1, axis=1)[:, :top]
    order = np.take_along_axis(
        part, np.argsort(-np.take_along_axis(scores, part, axis=1), axis=1, kind="stable"), axis=1
    )
    return [
        {
            "row": row,
            "rank": rank + 1,
            "class": scorer.class_names[c],
            "score": round(float(scores[row, c]), 4),
            "kind": "seen" if scorer.seen[c] else "unseen",
        }
        for row, classes in enumerate(order)
        for rank, c in enumerate(classes)
    ]


def as_csv(predictions: list[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ["row", "rank", "class", "score", "kind"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(predictions)
    return buffer.getvalue()


def main(arguments: Sequence[str], program: str) -> None:
    parse(Predict, arguments, program).run()
