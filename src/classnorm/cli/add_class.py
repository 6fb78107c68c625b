"""`classnorm add-class`: a model with more classes, for good."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import print_json
from classnorm.cli.model_command import ModelCommand, with_new_classes
from classnorm.cli.options import OutputOptions
from classnorm.progress import notice


@dataclass(frozen=True, kw_only=True)
class AddClass(ModelCommand):
    """Add classes to a model by their descriptors or descriptions, without training.

    Examples:
      classnorm add-class runs/mine/seed-0 --descriptors okapi.csv --out models/with-okapi
      classnorm add-class runs/animals/seed-0 --descriptors new.txt --out models/more --json

    Notes:
      The new model is a folder like the old one, with the same encoder and
      calibration, for predict, explain, export and serve. A class that the model
      knows already, in whatever spelling, is left as it is; with another
      descriptor it is an error. If the classes of the model were described in
      words, FILE may hold names or sentences, in any format of classnorm describe;
      they are encoded like those of the training.
    """

    descriptors: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """New classes: .csv, .parquet, .json, .npy (names in a .txt file beside it), the .npz of classnorm describe, or
    text, if the model was trained with text."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the new model."""
    output: OutputOptions

    def run(self) -> None:
        self.check_new(self.out)
        scorer = self.load()
        more = with_new_classes(scorer, self.descriptors)
        new = more.class_names[len(scorer.class_names) :]
        more.save(self.out)
        if self.output.json:
            print_json({"model": str(self.out), "new": list(new), "classes": len(more.class_names)})
            return
        notice(f"wrote {self.out}: {len(more.class_names)} classes")
