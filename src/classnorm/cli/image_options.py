"""Options of the commands that start from images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import counted
from classnorm.cli.options import DataOptions, Flag, Templates, optional
from classnorm.data.image_table import ImageTable
from classnorm.data.images import find_images
from classnorm.encoders import Encoder, check_encoder, frozen_encoder
from classnorm.io.escapes import file_name
from classnorm.preparation.dataset import Prepared, SplitSettings, described, joined_to, prepare
from classnorm.progress import notice, stage
from classnorm.training import Device, pick_device

_SHOWN = 20  # skipped images that are named on stderr; JSON has all


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Encoder of the images and descriptions of their classes."""

    encoder: Annotated[str, tyro.conf.arg(metavar="NAME")] = "efficientnet-lite0"
    """efficientnet-lite0, -lite1, -lite2, resnet18, resnet50, convnet, convnet-gray, or hf:ID or hf:FOLDER
    (transformers); join several with + to concatenate their features."""
    size: Annotated[int | None, optional("PX")] = None
    """Side of the encoder's input in pixels (default: set by the encoder, and best left so)."""
    flip: Flag = False
    """Average the features of each image with those of its mirror image, in twice the time."""
    weights: Annotated[Path | None, optional("FILE")] = None
    """Other weights for the encoder: a .safetensors or .pth file, Keras' model.json or .h5 file for resnet50, or a
    folder for a transformers model."""
    descriptions: Annotated[str | None, optional("FILE")] = None
    """Descriptions of the classes, in any format of classnorm describe; classes without images are unseen."""
    text_encoder: Annotated[str, tyro.conf.arg(metavar="NAME")] = "minilm"
    """Encoder of descriptions in words: minilm or a transformers model (hf:ID, hf:FOLDER); with set: before the name,
    the sentences of a class are kept as a set."""
    template: Templates = ()
    like: Annotated[str | None, optional("DATA")] = None
    """Take descriptors, class order and split from this dataset; images match by the last two parts of their path."""
    hold_out: Annotated[float | None, optional("SHARE")] = None
    """Share of the classes with images to hold out as unseen (default: 0.2 if every class has images, else 0)."""
    unseen: Annotated[tuple[str, ...], optional("NAME…")] = ()
    """Hold out these classes as unseen, instead of a share."""
    split_seed: int = 0
    """Seed of the split: the held-out classes, and a fifth of the images of each seen class for testing."""
    strict: Flag = False
    """Stop at the first image that cannot be read instead of skipping it."""

    def prepare(self, images: str, out: Path | None, source: DataOptions, device: Device) -> Prepared:
        """Make a dataset of the images; descriptors and features are cached in `out` or runs/NAME."""
        check_encoder(self.encoder, self.size)
        table = self.table(images, source)
        folder = out or Path("runs") / file_name(table.name)
        table = self.described(table, folder / "descriptors.npz")
        encoder = self.load_encoder()
        from classnorm.preparation import Encoding  # PyTorch

        encoding = Encoding(encoder, pick_device(device), strict=self.strict)
        with stage("extract"):
            prepared = prepare(table, encoding, folder / "features.npz", self.split)
        notice_skipped(prepared.skipped)
        if not prepared.is_new:
            notice(f"using the features of {prepared.dataset.n_rows} images in {folder / 'features.npz'}")
        sizes = prepared.dataset.sizes
        notice(
            f"{counted(sizes['seen_classes'], 'seen class')} with {sizes['train_rows']} training and "
            f"{counted(sizes['test_seen_rows'], 'test image')}; {counted(sizes['unseen_classes'], 'unseen class')} "
            f"with {counted(sizes['test_unseen_rows'], 'test image')}"
        )
        notice(*prepared.dataset.notices)
        return prepared

    def table(self, images: str, source: DataOptions) -> ImageTable:
        """The images, joined to the dataset of `like`."""
        table = find_images(images)
        return table if self.like is None else joined_to(table, source.load(self.like, notices=False))

    def described(self, table: ImageTable, cache: Path | None) -> ImageTable:
        """The table with descriptors."""
        return described(table, self.descriptions, self.text_encoder, self.template, cache=cache)

    @property
    def split(self) -> SplitSettings:
        return SplitSettings(self.hold_out, self.split_seed, self.unseen)

    def load_encoder(self) -> Encoder:
        encoder = frozen_encoder(self.encoder, self.size, self.weights, self.flip)
        if encoder.small is not None:
            notice(f"{encoder.small}; leave out --size")
        if "random" in encoder.weights.split(" + "):
            notice(f"{encoder.name} is not trained: its features are random filters; see --weights")
        return encoder


def notice_skipped(skipped: dict[str, str]) -> None:
    """Name the images that could not be read, with the reasons."""
    notice(*(f"skipped {file}: {reason}" for file, reason in list(skipped.items())[:_SHOWN]))
    if skipped:
        rest = f"; --json names {len(skipped) - _SHOWN} more" if len(skipped) > _SHOWN else ""
        were = "was" if len(skipped) == 1 else "were"
        notice(f"{counted(len(skipped), 'image')} could not be read and {were} skipped{rest}")
