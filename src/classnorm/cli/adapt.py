"""`classnorm adapt`: a model that has learnt from a few labelled or from unlabelled pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from classnorm.cli.console import print_json, print_table
from classnorm.cli.model_command import InputCommand, noticed_warnings
from classnorm.cli.options import OutputOptions, optional
from classnorm.errors import ConfigError
from classnorm.progress import notice
from classnorm.report import rich_table
from classnorm.results.artifact import Table

_SHOWN = 20  # classes in the table


@dataclass(frozen=True, kw_only=True)
class Adapt(InputCommand):
    """Let a model learn from a few labelled pictures, from unlabelled ones, or from both.

    Examples:
      classnorm adapt runs/mine/seed-0 --examples photos --out models/mine-2
      classnorm adapt runs/mine/seed-0 --unlabelled disk --out models/mine-3
      classnorm adapt runs/mine/seed-0 --examples few.npz --unlabelled features.npy --out models/mine-4 --json

    Notes:
      Nothing is trained: the prototypes of the classes move towards the pictures,
      the less the more the model trusts its descriptions. A class folder that the
      model does not know is a new class without a description; a line says so, and
      which known class it looks like. A model that has seen unlabelled pictures
      is transductive: never compare its scores on these pictures with those of
      models that have not. If validation found that such pictures would not help
      this model, they are left out, unless --force. The new model is a folder for
      predict, evaluate, explain, export and serve.
    """

    examples: Annotated[Path | None, optional("FOLDER|NPZ")] = None
    """Labelled pictures: a folder with one folder per class, a .csv file with path and label, or an .npz file with
    features and labels (class names)."""
    unlabelled: Annotated[Path | None, optional("FOLDER|FEATURES")] = None
    """Unlabelled pictures: a folder of images, or features: .npy, .npz, .mat, .csv, .parquet, a bundle."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the new model."""
    force: bool = False
    """Learn from unlabelled pictures even if validation found that they would not help."""
    output: OutputOptions

    def run(self) -> None:
        paths = [path for path in (self.examples, self.unlabelled) if path is not None]
        if not paths:
            raise ConfigError("nothing to learn from; give --examples, --unlabelled or both")
        self.encoding.check(paths)
        self.check_new(self.out)
        scorer = known = self.load()
        scorer.example_space()  # find out before images are encoded
        if self.examples is not None:
            scorer = self.with_examples(scorer, self.examples)
        if self.unlabelled is not None:
            _, features = self.read((self.unlabelled,), scorer.d_z)
            with noticed_warnings():
                scorer = scorer.adapt(features, self.force)
        scorer.save(self.out)
        document: dict[str, Any] = {
            "model": str(self.out),
            "classes": scorer.vectors.evidence(),
            "transductive": scorer.is_transductive,
            "unlabelled_gain": scorer.description_weight.unlabelled_gain,
        }
        if self.output.json:
            print_json(document)
            return
        if document["classes"]:
            _print(document["classes"])
        transductive = ", a transductive model: it has seen unlabelled pictures" if document["transductive"] else ""
        note = f": an unchanged copy of {self.model}" if scorer is known else transductive
        notice(f"wrote {self.out}{note}")


def _print(classes: list[dict[str, Any]]) -> None:
    rows = [
        [entry["name"], str(entry["examples"]), str(entry.get("unlabelled", "–")), f"{entry['weight']:.2f}"]
        for entry in classes[:_SHOWN]
    ]
    header = ["class", "examples", "unlabelled", "weight of description"]
    print_table(rich_table(Table.of("classes with pictures", header, rows)))
    if len(classes) > _SHOWN:
        print(f"… and {len(classes) - _SHOWN} more")
