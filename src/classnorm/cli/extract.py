"""`classnorm extract`: images → features."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from classnorm.cli.console import notice, print_json
from classnorm.cli.options import DataOptions, OutputOptions, parse
from classnorm.data.images import find_images
from classnorm.encoders import Encoder, Extraction, extract_features, load_encoder
from classnorm.errors import ConfigError
from classnorm.training import Device, pick_device

_SHOWN = 20  # skipped images that are named on stderr; JSON has all
_SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True, kw_only=True)
class Extract:
    """Turn images into an .npz bundle of features. After an interruption the same command goes on where it was.

    IMAGES is a folder with a folder per class, a CSV file with the columns path and label, a folder in the layout of
    CUB-200-2011, glyphs or glyphs-light. With --like the bundle can be trained on at once; without, it holds what the
    source tells, and the last line says what is missing.

    Examples:
      classnorm extract photos --out photos.npz
      classnorm extract CUB_200_2011 --like xlsa17/data/CUB --encoder efficientnet-lite2 --out cub.npz
      classnorm extract list.csv --encoder hf:facebook/dinov2-base --size 224 --out dino.npz --device cuda
    """

    images: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")]
    """Folder, .csv file, glyphs or glyphs-light."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.npz")]
    """Bundle to write."""
    encoder: str = "efficientnet-lite0"
    """efficientnet-lite0, -lite1, -lite2, resnet18, convnet, convnet-gray, or hf:ID or hf:FOLDER of a transformers
    model."""
    size: Annotated[int | None, tyro.conf.arg(metavar="PX", help_behavior_hint="")] = None
    """Side of the picture that the encoder sees (default: what it was made for)."""
    weights: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Other weights for the encoder: .safetensors or .pth, a folder for transformers models."""
    like: Annotated[str | None, tyro.conf.arg(metavar="DATA", help_behavior_hint="")] = None
    """Take descriptors, class order and split from this GBU folder or bundle, joined by image path (last two parts)."""
    batch_size: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Images encoded together (default: 8 on a CPU, 64 elsewhere)."""
    device: Device = "auto"
    """auto is CUDA where there is one, then MPS, then the CPU."""
    strict: bool = False
    """Stop at the first image that cannot be read, instead of skipping it."""
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        if self.out.suffix != ".npz" or self.out.is_dir():
            raise ConfigError(f"--out {self.out}: must be a file that ends in .npz")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"--batch-size is {self.batch_size}; it must be at least 1")
        device = pick_device(self.device)
        table = find_images(self.images)
        if self.like is not None:
            dataset = self.source.load(self.like)
            found, table = len(table), table.like(dataset)
            if len(table) < dataset.n_rows:
                notice(f"{len(table)} of the {dataset.n_rows} images of {dataset.name} are there", self.output.quiet)
            if len(table) < found:
                notice(f"{found - len(table)} images are not of {dataset.name} and left out", self.output.quiet)
        torch.manual_seed(0)  # an encoder without trained weights is the same in every attempt
        encoder = load_encoder(self.encoder, self.size, self.weights)
        if encoder.weights == "random":
            notice(f"{encoder.name} is not trained: its features are random filters; see --weights", self.output.quiet)
        started = time.monotonic()
        with _progress(self.output.quiet) as progress:
            result = extract_features(
                table,
                encoder,
                self.out,
                batch_size=self.batch_size,
                device=device,
                strict=self.strict,
                progress=progress,
            )
        self._report(result, encoder, time.monotonic() - started)

    def _report(self, result: Extraction, encoder: Encoder, seconds: float) -> None:
        files = list(result.skipped.items())
        for file, reason in files[:_SHOWN]:
            notice(f"skipped {file}: {reason}", self.output.quiet)
        if files:
            more = f"; {len(files) - _SHOWN} more are in --json" if len(files) > _SHOWN else ""
            notice(f"{len(files)} images could not be read and are left out{more}", self.output.quiet)
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
            hint = "give --like a GBU folder, or add these arrays"
            ready = f"not yet a dataset for train: {', '.join(result.missing)} missing; {hint}"
        notice(f"wrote {self.out}: {what}\nclassnorm: {ready}", self.output.quiet)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int, int], None] | None]:
    """A bar with images/s and time left, or a line now and then off a terminal."""
    if quiet:
        yield None
        return
    started = last = time.monotonic()

    def rate(done: int, of: int, before: int) -> str:
        speed = (done - before) / (time.monotonic() - started)
        return f"{speed:.1f} images/s, about {(of - done) / speed:.0f} s left"

    if sys.stderr.isatty():
        columns = (TextColumn("extract"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task("", total=None)
            yield lambda done, of, before: bars.update(
                task, completed=done, total=of, description=rate(done, of, before)
            )
        return

    def line(done: int, of: int, before: int) -> None:
        nonlocal last
        if done == of or time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"extract: {done}/{of}, {rate(done, of, before)}", file=sys.stderr, flush=True)

    yield line


def main(arguments: Sequence[str], program: str) -> None:
    parse(Extract, arguments, program).run()
