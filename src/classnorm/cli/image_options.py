"""Flags of the commands that start from images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import notice, stage_progress
from classnorm.cli.options import DataOptions
from classnorm.data.image_table import ImageTable
from classnorm.data.images import find_images
from classnorm.encoders import Encoder, frozen_encoder
from classnorm.encoders.preparation import Prepared, described, joined_to, prepare
from classnorm.training import Device, pick_device

__all__ = ["ImageOptions", "name_skipped"]

_SHOWN = 20  # skipped images that are named on stderr; JSON has all


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """From images to features, and what describes their classes."""

    encoder: str = "efficientnet-lite0"
    """efficientnet-lite0, -lite1, -lite2, resnet18, convnet, convnet-gray, or hf:ID or hf:FOLDER of a transformers
    model."""
    size: Annotated[int | None, tyro.conf.arg(metavar="PX", help_behavior_hint="")] = None
    """Side of the picture that the encoder sees (default: what it was made for)."""
    weights: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Other weights for the encoder: .safetensors or .pth, a folder for transformers models."""
    descriptions: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """What is said of the classes, also of those without images, which are unseen: anything that classnorm describe
    reads or writes."""
    text_encoder: Annotated[str, tyro.conf.arg(metavar="NAME")] = "minilm"
    """For descriptions in words: minilm, or hf:ID or hf:FOLDER of a transformers model."""
    template: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="TEXT", help_behavior_hint="")
    ] = ()
    """Frame for such a description, "a photo of a {}"; may be given again, then all are averaged."""
    like: Annotated[str | None, tyro.conf.arg(metavar="DATA", help_behavior_hint="")] = None
    """Take descriptors, class order and split from this GBU folder or bundle, joined by image path (last two parts)."""
    hold_out: Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint="")] = None
    """Share of the classes with images to treat as unseen, so that they can be scored (default: 0.2 if every class has
    images, else 0)."""
    split_seed: int = 0
    """Draws the held-out classes, and the fifth of the images of each seen class that is for the test."""
    strict: bool = False
    """Stop at the first image that cannot be read, instead of skipping it."""

    def prepare(self, images: str, out: Path | None, source: DataOptions, device: Device, quiet: bool) -> Prepared:
        """The dataset that images make; descriptors and features are kept in `out`, or in runs/NAME."""

        def tell(text: str) -> None:
            notice(text, quiet)

        table = self.table(images, source, tell)
        folder = out or Path("runs") / table.name
        table = self.described(table, folder / "descriptors.npz", tell)
        encoder = self.load_encoder(tell)
        with stage_progress("extract", quiet) as progress:
            prepared = prepare(
                table,
                encoder,
                folder / "features.npz",
                hold_out=self.hold_out,
                seed=self.split_seed,
                device=pick_device(device),
                strict=self.strict,
                progress=progress,
            )
        name_skipped(prepared.skipped, quiet)
        if not prepared.is_new:
            tell(f"features of {prepared.dataset.n_rows} images are in {folder / 'features.npz'}")
        sizes = prepared.dataset.sizes
        tell(
            f"{sizes['seen_classes']} seen classes with {sizes['train_rows']} images to train and "
            f"{sizes['test_seen_rows']} to test; {sizes['unseen_classes']} unseen, {sizes['test_unseen_rows']} to test"
        )
        return prepared

    def table(self, images: str, source: DataOptions, tell: Callable[[str], None]) -> ImageTable:
        """The images, joined to the dataset that they should be like."""
        table = find_images(images)
        return table if self.like is None else joined_to(table, source.load(self.like), tell)

    def described(self, table: ImageTable, cache: Path | None, tell: Callable[[str], None]) -> ImageTable:
        """The table with descriptors."""
        return described(table, self.descriptions, self.text_encoder, self.template, cache=cache, tell=tell)

    def load_encoder(self, tell: Callable[[str], None]) -> Encoder:
        encoder = frozen_encoder(self.encoder, self.size, self.weights)
        if encoder.weights == "random":
            tell(f"{encoder.name} is not trained: its features are random filters; see --weights")
        return encoder


def name_skipped(skipped: dict[str, str], quiet: bool) -> None:
    """Say which images were left out, and why."""
    files = list(skipped.items())
    for file, reason in files[:_SHOWN]:
        notice(f"skipped {file}: {reason}", quiet)
    if files:
        more = f"; {len(files) - _SHOWN} more are in --json" if len(files) > _SHOWN else ""
        notice(f"{len(files)} images could not be read and are left out{more}", quiet)
