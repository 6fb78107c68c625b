"""`classnorm extract`: images → features."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import notice, print_json, stage_progress
from classnorm.cli.image_options import ImageOptions, name_skipped
from classnorm.cli.options import DataOptions, OutputOptions, parse
from classnorm.data.image_table import ImageTable
from classnorm.encoders import Encoder, Extraction, extract_features
from classnorm.encoders.preparation import with_split
from classnorm.errors import ConfigError
from classnorm.training import Device, pick_device


@dataclass(frozen=True, kw_only=True)
class Extract:
    """Turn images into an .npz bundle of features. After an interruption the same command goes on where it was.

    IMAGES is a folder with a folder per class, a CSV file with the columns path and label, a folder in the layout of
    CUB-200-2011, glyphs or glyphs-light. With --descriptions or --like the bundle can be trained on at once; without,
    it holds what the source tells, and the last line says what is missing.

    Examples:
      classnorm extract photos --out photos.npz
      classnorm extract photos --descriptions animals.csv --out animals.npz
      classnorm extract CUB_200_2011 --like xlsa17/data/CUB --encoder efficientnet-lite2 --out cub.npz
      classnorm extract list.csv --encoder hf:facebook/dinov2-base --size 224 --out dino.npz --device cuda
    """

    images: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")]
    """Folder, .csv file, glyphs or glyphs-light."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.npz")]
    """Bundle to write."""
    batch_size: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Images encoded together (default: 8 on a CPU, 64 elsewhere)."""
    device: Device = "auto"
    """auto is CUDA where there is one, then MPS, then the CPU."""
    how: Annotated[ImageOptions, tyro.conf.arg(name="")]
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        if self.out.suffix != ".npz" or self.out.is_dir():
            raise ConfigError(f"--out {self.out}: must be a file that ends in .npz")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"--batch-size is {self.batch_size}; it must be at least 1")
        device = pick_device(self.device)
        table = self.how.table(self.images, self.source, self._tell)
        trainable = self.how.descriptions is not None or self.how.hold_out is not None
        if trainable:
            table = self.how.described(table, None, self._tell)

        def finish(kept: ImageTable) -> ImageTable:
            return with_split(kept, self.how.hold_out, self.how.split_seed) if trainable else kept

        finish(table)  # a mistake is told before hours are spent
        encoder = self.how.load_encoder(self._tell)
        started = time.monotonic()
        with stage_progress("extract", self.output.quiet) as progress:
            result = extract_features(
                table,
                encoder,
                self.out,
                batch_size=self.batch_size,
                device=device,
                strict=self.how.strict,
                finish=finish,
                progress=progress,
            )
        self._report(result, encoder, time.monotonic() - started)

    def _tell(self, text: str) -> None:
        notice(text, self.output.quiet)

    def _report(self, result: Extraction, encoder: Encoder, seconds: float) -> None:
        name_skipped(result.skipped, self.output.quiet)
        rate = result.new / seconds
        if self.output.json:
            print_json(
                {
                    "target": str(self.out),
                    "images": result.images,
                    "skipped": result.skipped,
                    "missing_for_train": list(result.missing),
                    "encoder": encoder.record(),
                    "seconds": round(seconds, 3),
                    "images_per_second": round(rate, 2),
                }
            )
            return
        what = f"{result.images} images, {encoder.d_z} dimensions, {rate:.1f} images/s"
        ready = f"ready for classnorm train {self.out}"
        if result.missing:
            hint = "give --descriptions FILE or --like a GBU folder, or add these arrays"
            ready = f"not yet a dataset for train: {', '.join(result.missing)} missing; {hint}"
        notice(f"wrote {self.out}: {what}\nclassnorm: {ready}", self.output.quiet)


def main(arguments: Sequence[str], program: str) -> None:
    parse(Extract, arguments, program).run()
