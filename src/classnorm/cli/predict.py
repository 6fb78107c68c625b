"""`classnorm predict`: classify images or features."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from classnorm.cli.console import notice, print_json, stage_progress
from classnorm.cli.image_options import name_skipped
from classnorm.cli.options import OutputOptions, parse
from classnorm.data.images import list_images
from classnorm.data.table_files import read_descriptors, read_features
from classnorm.encoders import Encoder, encode_images, frozen_encoder, recorded_encoder, same_encoder
from classnorm.errors import ConfigError, DataError
from classnorm.files import write_json, write_text
from classnorm.results.run_folder import encoder_file, read_encoder
from classnorm.scoring import Scorer
from classnorm.training import Device, pick_device


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Classify images, or rows of features, into the model's classes and any others that come with a descriptor.

    Images are encoded as those were that the model was trained on. Prints CSV (row or image, rank, class, score,
    probability, kind), or JSON. Scores are the model's calibrated scores: higher is better. Probabilities are those
    among all classes that compete, at the temperature that validation chose.

    Examples:
      classnorm predict runs/mine/seed-0 photos --top 3 --out answers.csv
      classnorm predict runs/mine/seed-0 features.npy
      classnorm predict runs/mine/seed-0 features.npy --descriptors new_classes.csv --top 3
      classnorm predict runs/mine/seed-0 features.parquet --only okapi zebra --json
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Folder of a run."""
    features: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES|FEATURES")]
    """An image, a folder of images, a .csv file with a column path; or rows of features: .npy, .npz (key features),
    .mat, .csv or .parquet."""
    descriptors: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """New classes: .csv or .parquet (name, then numbers), .json ({name: numbers}), .npy (names in a .txt beside it),
    .npz of classnorm describe."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…", help_behavior_hint="")] = ()
    """Let only these classes compete."""
    top: int = 1
    """Classes to give for each row, best first."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Write to this file (.csv or .json) instead of stdout."""
    encoder: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Encoder of images (default: the one that the model remembers)."""
    size: Annotated[int | None, tyro.conf.arg(metavar="PX", help_behavior_hint="")] = None
    """Side of the picture that this encoder sees."""
    weights: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Other weights for the encoder, if the model was trained with such."""
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
        images = list_images(self.features)
        if images is None:
            names, features = None, read_features(self.features)
        else:
            names, features = self._encoded(images)
        if features.shape[1] != scorer.d_z:
            raise DataError(
                f"{self.features}: features have {features.shape[1]} dimensions; the model was trained on {scorer.d_z}"
            )
        predictions = best(scorer, features, self.top)
        if names is not None:
            predictions = [{"image": names[answer.pop("row")], **answer} for answer in predictions]
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

    def _encoded(self, images: dict[str, Path]) -> tuple[list[str], Any]:
        """Names and features of the images that can be read; the others are named and left out."""
        encoder = self._encoder()
        with stage_progress("extract", self.output.quiet) as progress:
            features, reasons = encode_images(
                list(images.values()), encoder, device=pick_device(self.device), progress=progress
            )
        skipped = {name: reason for name, reason in zip(images, reasons, strict=True) if reason}
        if len(skipped) == len(images):
            name, reason = next(iter(skipped.items()))
            raise DataError(f"{self.features}: none of {len(images)} images can be read, first {name}: {reason}")
        name_skipped(skipped, self.output.quiet)
        return [name for name in images if name not in skipped], features

    def _encoder(self) -> Encoder:
        if self.encoder is not None:
            encoder = frozen_encoder(self.encoder, self.size, self.weights)
            if encoder_file(self.model).is_file():
                same_encoder(encoder, read_encoder(self.model))
            return encoder
        if self.size is not None:
            raise ConfigError("--size goes with --encoder; without it the model knows its encoder and its size")
        return recorded_encoder(read_encoder(self.model), self.weights)


def best(scorer: Scorer, features: Any, top: int) -> list[dict[str, Any]]:
    """For each row its best classes, best first."""
    found = scorer.top(features, top)
    return [
        {
            "row": row,
            "rank": rank + 1,
            "class": scorer.class_names[c],
            "score": round(float(found.scores[row, rank]), 4),
            "probability": round(float(found.probabilities[row, rank]), 6),
            "kind": "seen" if scorer.seen[c] else "unseen",
        }
        for row, classes in enumerate(found.indices)
        for rank, c in enumerate(classes)
    ]


def as_csv(predictions: list[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    columns = list(predictions[0]) if predictions else ["row", "rank", "class", "score", "probability", "kind"]
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(predictions)
    return buffer.getvalue()


def main(arguments: Sequence[str], program: str) -> None:
    parse(Predict, arguments, program).run()
