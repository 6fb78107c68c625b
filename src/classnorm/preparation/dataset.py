"""Datasets from images and class descriptions. The result of each step is stored and reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm.data import Split, ZeroShotDataset, load_bundle
from classnorm.data.decoding import read_images
from classnorm.data.descriptions import Descriptions, read_descriptions
from classnorm.data.image_table import Images, ImageTable
from classnorm.data.names import attributes_of_columns, match_names
from classnorm.data.validation import stratified
from classnorm.encoders import Preprocessing
from classnorm.errors import ConfigError, DataError
from classnorm.preparation import describe
from classnorm.progress import notice

if TYPE_CHECKING:
    from classnorm.preparation.extraction import Encoding

HOLD_OUT = 0.2  # of the classes, by default if all have images
_TEST_SEEN = 0.2  # of the images of each seen class
_BESIDE = 64  # folders looked at for features of the same images

_THUMBNAIL = Preprocessing(96, 96, (0.0,) * 3, (1.0,) * 3)


@dataclass(frozen=True)
class Prepared:
    """A dataset of images."""

    dataset: ZeroShotDataset
    skipped: dict[str, str]  # file → why it cannot be read
    is_new: bool  # false if the features come from an earlier call
    images: Images  # one per row

    def examples(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a run's `examples.npz`: a few test images of unseen classes that can be read."""
        positions = self.dataset.example_positions()
        images = read_images(self.images, self.dataset.test_rows[positions].tolist(), _THUMBNAIL.pixels)
        examples = {int(p): image for p, image in zip(positions, images, strict=True) if not isinstance(image, str)}
        if not examples:
            return {}
        return {"position": np.array(list(examples)), "image": np.stack(list(examples.values()))}


def joined_to(table: ImageTable, dataset: ZeroShotDataset) -> ImageTable:
    """Select the images of `dataset`, with its descriptors and split."""
    joined = table.like(dataset)
    if len(joined) < dataset.n_rows:
        notice(f"{len(joined)} of the {dataset.n_rows} images of {dataset.name} are there")
    if len(joined) < len(table):
        notice(f"{len(table) - len(joined)} images are not of {dataset.name} and are left out")
    return joined


def described(
    table: ImageTable,
    descriptions: str | None,
    text_encoder: str = "minilm",
    templates: Sequence[str] = (),
    *,
    cache: Path | None = None,
) -> ImageTable:
    """Add descriptors to a table. It gets the classes of `descriptions`, of which those without images are unseen.

    Without `descriptions`, classes are described by the attributes of the table (as in CUB), or else by their names.
    """
    if descriptions is None and table.descriptors is not None:
        return table
    if descriptions is None:
        content = Descriptions.of_names(table.class_names, table.name)
    else:
        content = read_descriptions(descriptions)
    notice(*content.notices)
    positions = np.array(match_names(table.class_names, table.name, content.names, content.where), dtype=np.int64)
    descriptors = describe(content, text_encoder, templates, cache=cache)
    return replace(
        table,
        labels=positions[table.labels],
        class_names=descriptors.names,
        descriptors=descriptors.table,
        provenance=table.provenance | descriptors.provenance,
        attribute_names=attributes_of_columns(descriptors.columns, descriptors.provenance),
    )


@dataclass(frozen=True)
class SplitSettings:
    """How images without a split are split: which classes are held out as unseen."""

    hold_out: float | None = None
    """Share of the classes with images; None for a fifth if every class has images, else 0."""
    seed: int = 0
    unseen: tuple[str, ...] = ()
    """Names of the classes to hold out instead."""

    def as_dict(self) -> dict[str, Any]:
        """As in the manifest of a part."""
        named = {"unseen": list(self.unseen)} if self.unseen else {}
        return {"hold_out": self.hold_out, "seed": self.seed, **named}


def with_split(table: ImageTable, settings: SplitSettings) -> ImageTable:
    """Add a split to a table that has none.

    Classes without images are unseen, and some of the others are held out as unseen to score them. A fifth of the
    images of each seen class are test images.
    """
    hold_out, unseen = settings.hold_out, settings.unseen
    if table.split is not None:
        if hold_out is not None or unseen:
            raise ConfigError(
                f"{table.name} brings a split of its own; leave out `{'unseen' if unseen else 'hold_out'}`"
            )
        return table
    if unseen and hold_out is not None:
        raise ConfigError("both `unseen` and `hold_out`; name the classes to hold out, or say how many")
    if hold_out is not None and not 0 <= hold_out < 1:
        raise ConfigError(f"`hold_out` is {hold_out}; it must be a share of the classes, from 0 to below 1")
    present = np.unique(table.labels)
    share = (HOLD_OUT if len(present) == len(table.class_names) else 0.0) if hold_out is None else hold_out
    n_held_out = min(max(1, round(share * len(present))), len(present) - 2) if share and not unseen else 0
    if n_held_out < 0 or (hold_out and not n_held_out):
        raise DataError(f"{table.name}: {len(present)} classes have images; 3 are needed to hold one out, 2 to train")
    generator = np.random.default_rng([settings.seed, len(present)])
    held_out = generator.permutation(present)[:n_held_out]
    rows = generator.permutation(len(table))
    if unseen:
        held_out = np.array(match_names(list(dict.fromkeys(unseen)), "`unseen`", table.class_names, table.name))
        if len(np.setdiff1d(present, held_out)) < 2:
            raise DataError(f"{table.name}: `unseen` leaves fewer than 2 classes with images to train on")
    is_unseen = np.isin(table.labels[rows], held_out)
    train, test_seen = stratified(rows[~is_unseen], table.labels, _TEST_SEEN)
    return replace(table, split=Split(train, test_seen, np.sort(rows[is_unseen])))


def prepare(table: ImageTable, encoding: Encoding, bundle: Path, split: SplitSettings) -> Prepared:
    """Build the dataset of a table with descriptors, and write it to the file `bundle`.

    If this file, or the file of the same name in a folder beside its own, already contains features of the same images
    by the same encoder, they are reused.
    """
    from classnorm.preparation.extraction import Target, extract  # PyTorch

    beside = sorted(bundle.absolute().parent.parent.glob(f"*/{bundle.name}"))[:_BESIDE]
    extraction = extract(table, encoding, Target(bundle), split, reuse=(bundle, *beside))
    skipped = extraction.skipped
    readable = table.take(np.flatnonzero(~np.isin(table.files, list(skipped)))) if skipped else table
    return Prepared(load_bundle(bundle), skipped, not extraction.reused, readable.images)
