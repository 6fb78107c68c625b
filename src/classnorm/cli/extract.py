"""`classnorm extract`: turn images into features."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from classnorm.cli.console import notice, print_json, stage_progress
from classnorm.cli.image_options import ImageOptions, notice_skipped
from classnorm.cli.options import Command, DataOptions, OutputOptions, check_positive, optional
from classnorm.cli.run_options import DeviceOption
from classnorm.data.image_table import ImageTable
from classnorm.encoders import Encoder, check_encoder
from classnorm.encoders.preparation import with_split
from classnorm.errors import ConfigError
from classnorm.training import pick_device

if TYPE_CHECKING:
    from classnorm.encoders import Extraction


@dataclass(frozen=True, kw_only=True)
class Extract(Command):
    """Turn images into an .npz bundle of features.

    Examples:
      classnorm extract photos --out photos.npz
      classnorm extract photos --descriptions animals.csv --out animals.npz
      classnorm extract CUB_200_2011 --like xlsa17/data/CUB --encoder efficientnet-lite2 --out cub.npz
      classnorm extract list.csv --encoder hf:facebook/dinov2-base --size 224 --out dino.npz --device cuda

    Notes:
      IMAGES is a folder per class, a CSV file with the columns path and label, a
      folder in the layout of CUB-200-2011, glyphs or glyphs-light. With
      --descriptions, --hold-out or --like the bundle is a complete dataset for
      train; otherwise the last line names what is missing. To continue after an
      interruption, run the same command again.
    """

    images: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")]
    """A folder, a .csv file, glyphs or glyphs-light."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.npz")]
    """Bundle to write."""
    batch_size: Annotated[int | None, optional("N")] = None
    """Images per batch (default: 8 on a CPU, else 64)."""
    device: DeviceOption = "auto"
    image: ImageOptions
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        if self.out.suffix != ".npz" or self.out.is_dir():
            raise ConfigError(f"--out {self.out}: must be a file that ends in .npz")
        check_positive("batch-size", self.batch_size)
        check_encoder(self.image.encoder, self.image.size)
        tell = partial(notice, quiet=self.output.quiet)
        table = self.image.table(self.images, self.dataset, tell)
        trainable = self.image.descriptions is not None or self.image.hold_out is not None
        if trainable:
            table = self.image.described(table, None, tell)

        def finish(readable: ImageTable) -> ImageTable:
            return with_split(readable, self.image.hold_out, self.image.split_seed) if trainable else readable

        finish(table)  # raises before hours are spent on the images
        device, encoder = pick_device(self.device), self.image.load_encoder(tell)
        from classnorm.encoders import extract_features

        started = time.monotonic()
        with stage_progress("extract", self.output.quiet) as progress:
            result = extract_features(
                table,
                encoder,
                self.out,
                batch_size=self.batch_size,
                device=device,
                strict=self.image.strict,
                finish=finish,
                progress=progress,
            )
        self._report(result, encoder, time.monotonic() - started)

    def _report(self, result: Extraction, encoder: Encoder, seconds: float) -> None:
        notice_skipped(result.skipped, self.output.quiet)
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
        verdict = f"ready for classnorm train {self.out}"
        if result.missing:
            hint = "use --descriptions FILE or --like DATA, or add these arrays"
            verdict = f"not yet a dataset for train: {', '.join(result.missing)} missing; {hint}"
        summary = f"{result.images} images, {encoder.d_z} dimensions, {rate:.1f} images/s"
        notice(f"wrote {self.out}: {summary}", verdict, quiet=self.output.quiet)
