"""`classnorm suggest`: which pictures to label, and which classes to describe better."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from classnorm.cli.console import print_json
from classnorm.cli.model_command import InputCommand
from classnorm.cli.options import OutputOptions
from classnorm.settings import check_positive

_SURE = 0.95  # probability of the likeliest class
_LEAST = 0.1  # pictures at stake in a class


@dataclass(frozen=True, kw_only=True)
class Suggest(InputCommand):
    """Say which pictures to label next, and which classes to describe better.

    Examples:
      classnorm suggest runs/mine/seed-0 --unlabelled photos
      classnorm suggest runs/mine/seed-0 --unlabelled features.npz --count 50 --json

    Notes:
      Pictures are chosen for what their label would teach: classes with little
      evidence that many pictures may be mistaken for, and typical pictures of
      them. Gains are percentages of the present uncertainty. For a class, the gain
      is what a perfect description would bring; its attributes are those that
      would tell it from the class it is most confused with.
    """

    unlabelled: Annotated[Path, tyro.conf.arg(metavar="FOLDER|FEATURES")]
    """Images, or features: .npy, .npz, .mat, .csv, .parquet, a bundle."""
    count: int = 20
    """Number of pictures."""
    classes: int = 5
    """Number of classes."""
    output: OutputOptions

    def run(self) -> None:
        check_positive(count=self.count, classes=self.classes)
        self.encoding.check((self.unlabelled,))
        from classnorm.scoring import suggest  # PyTorch

        scorer = self.load()
        names, features = self.read((self.unlabelled,), scorer.d_z)
        document = suggest(scorer, features, self.count, self.classes)
        if names is not None:
            document["pictures"] = [
                {"path": names[picture["row"]], **{key: value for key, value in picture.items() if key != "row"}}
                for picture in document["pictures"]
            ]
        if self.output.json:
            print_json(document)
        else:
            print(*_lines(document), sep="\n")


def _lines(document: dict[str, Any]) -> list[str]:
    pictures, classes = document["pictures"], document["classes"]
    lines = []
    if all(p["probability"] >= _SURE for p in pictures) and all(c["pictures"] < _LEAST for c in classes):
        lines.append("there is little to gain: the model is sure of these pictures; gains are shares of the doubt left")
    lines.append("label these pictures (gain in percent of the uncertainty, picture, why):")
    for picture in pictures:
        name = picture["path"] if "path" in picture else f"row {picture['row']}"
        lines.append(f"{picture['gain']:6.2f} %  {name}  {picture['reason']}")
    lines += ["", "describe these classes better:"]
    return lines + [f"{entry['gain']:6.2f} %  {entry['class']}  {entry['reason']}" for entry in classes]
