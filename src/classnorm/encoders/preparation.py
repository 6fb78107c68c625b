"""From images and what is said of their classes to a dataset, step by step; each step that is done is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from classnorm.data import Split, ZeroShotDataset, load_bundle, save_bundle
from classnorm.data.bundle import provenance_of, read_npz, texts
from classnorm.data.dataset import IntArray
from classnorm.data.descriptions import Descriptions, match_names, read_descriptions
from classnorm.data.image_table import Images, ImageTable
from classnorm.data.images import image_signature, read_images
from classnorm.data.validation import stratified
from classnorm.encoders import Encoder, Preprocessing, describe, extract_features
from classnorm.errors import ConfigError, DataError
from classnorm.progress import OnProgress
from classnorm.results.run_folder import write_arrays

__all__ = ["Prepared", "described", "joined_to", "own_split", "prepare", "with_split"]

HOLD_OUT = 0.2  # of the classes, where each has images and nothing else is asked for
_TEST_SEEN = 0.2  # of the images of each seen class
_KEPT = ("features", "encoder", "images", "skipped")  # what a bundle tells of its features

_THUMBNAIL = Preprocessing(96, 96, (0.0,) * 3, (1.0,) * 3)

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A dataset made of images, and what became of them."""

    dataset: ZeroShotDataset
    skipped: dict[str, str]  # file → why it could not be read
    is_new: bool  # false if the features were there from an earlier call
    images: Images  # one per row

    def write_examples(self, folder: Path) -> None:
        """Put a few test images of unseen classes into a run folder, for the report."""
        picks = self.dataset.example_positions()
        rows = self.dataset.test_rows[picks].tolist()
        pictures = list(read_images(self.images, rows, _THUMBNAIL.pixels))
        (folder / "examples.npz").unlink(missing_ok=True)  # of an earlier run with another split
        found = {int(p): picture for p, picture in zip(picks, pictures, strict=True) if not isinstance(picture, str)}
        if found:
            arrays = {"position": np.array(list(found)), "image": np.stack(list(found.values()))}
            write_arrays(folder / "examples.npz", arrays)


def joined_to(table: ImageTable, dataset: ZeroShotDataset, tell: Tell) -> ImageTable:
    """The images that `dataset` names, with its descriptors and split."""
    joined = table.like(dataset)
    if len(joined) < dataset.n_rows:
        tell(f"{len(joined)} of the {dataset.n_rows} images of {dataset.name} are there")
    if len(joined) < len(table):
        tell(f"{len(table) - len(joined)} images are not of {dataset.name} and left out")
    return joined


def described(
    table: ImageTable,
    descriptions: str | None,
    text_encoder: str = "minilm",
    templates: Sequence[str] = (),
    *,
    cache: Path | None = None,
    tell: Tell = lambda text: None,
) -> ImageTable:
    """The table with a descriptor of each class of `descriptions`; those without images will be unseen.

    Without `descriptions` it is the table's own attributes that describe (CUB has some), or else the class names.
    """
    if descriptions is None and table.descriptors is not None:
        return table
    said = (
        Descriptions.of_names(table.class_names, table.name)
        if descriptions is None
        else read_descriptions(descriptions)
    )
    for text in said.notices:
        tell(text)
    places = np.array(match_names(table.class_names, table.name, said.names, said.where), dtype=np.int64)
    made = describe(said, text_encoder, templates, cache=cache, tell=tell)
    return replace(
        table,
        labels=places[table.labels],
        class_names=made.names,
        descriptors=made.table,
        provenance={**table.provenance, **made.provenance},
    )


def with_split(table: ImageTable, hold_out: float | None = None, seed: int = 0) -> ImageTable:
    """The table with a split, its own if it has one."""
    if table.split is not None:
        if hold_out is not None:
            raise ConfigError(f"{table.name} brings a split of its own; leave out `hold_out`")
        return table
    return replace(table, split=own_split(table.labels, len(table.class_names), hold_out, seed, table.name))


def own_split(labels: IntArray, n_classes: int, hold_out: float | None, seed: int, where: str) -> Split:
    """Classes without images are unseen, and a share of the others is held out as unseen, so that they can be scored.

    Of each seen class a fifth of the images are for the test.

    Args:
        hold_out: the share; None is a fifth if every class has images, else nothing.
    """
    if hold_out is not None and not 0 <= hold_out < 1:
        raise ConfigError(f"`hold_out` is {hold_out}; it must be a share of the classes, from 0 to below 1")
    present = np.unique(labels)
    share = (HOLD_OUT if len(present) == n_classes else 0.0) if hold_out is None else hold_out
    n_held_out = min(max(1, round(share * len(present))), len(present) - 2) if share else 0
    if n_held_out < 0 or (hold_out and not n_held_out):
        raise DataError(f"{where}: {len(present)} classes have images; 3 are needed to hold one out, 2 to train")
    generator = np.random.default_rng([seed, len(present)])
    unseen = generator.permutation(present)[:n_held_out]
    rows = generator.permutation(len(labels))
    is_unseen = np.isin(labels[rows], unseen)
    train, test_seen = stratified(rows[~is_unseen], labels, _TEST_SEEN)
    return Split(train, test_seen, np.sort(rows[is_unseen]))


def prepare(
    table: ImageTable,
    encoder: Encoder,
    bundle: Path,
    *,
    hold_out: float | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    strict: bool = False,
    progress: OnProgress | None = None,
) -> Prepared:
    """The dataset of a described table, also written to the file `bundle`.

    Features that the file holds already, of the same images by the same encoder, are not made again.
    """

    def finish(kept: ImageTable) -> ImageTable:
        return with_split(kept, hold_out, seed)

    finish(table)  # a mistake is told before hours are spent on features
    is_new = not _refreshed(table, encoder, bundle, finish, strict)
    if is_new:
        extract_features(table, encoder, bundle, device=device, strict=strict, finish=finish, progress=progress)
    dataset = load_bundle(bundle)
    skipped = json.loads(dataset.provenance.get("skipped", "{}"))
    readable = table.take(np.flatnonzero(~np.isin(table.files, list(skipped)))) if skipped else table
    return Prepared(dataset, skipped, is_new, readable.images)


def _refreshed(
    table: ImageTable, encoder: Encoder, bundle: Path, finish: Callable[[ImageTable], ImageTable], strict: bool
) -> bool:
    """Whether the bundle holds the features of these images by this encoder; what it says besides is then renewed."""
    try:
        content = read_npz(bundle, ("features", "image_files", "provenance"))
        provenance = provenance_of(content, bundle)
    except DataError:
        return False
    known = (provenance.get("images"), provenance.get("encoder"))
    if known != (image_signature(table.images, range(len(table))), json.dumps(encoder.record())):
        return False
    if strict and "skipped" in provenance:
        return False  # it was made without
    kept = finish(table.take(np.flatnonzero(np.isin(table.files, texts(content["image_files"])))))
    dataset = kept.dataset(
        content["features"],
        str(bundle),
        provenance={**kept.provenance, **{key: provenance[key] for key in _KEPT if key in provenance}},
        image_files=kept.files,
        is_train=kept.is_train,
    )
    if not _holds(bundle, dataset):
        save_bundle(dataset, bundle)
    return True


def _holds(bundle: Path, dataset: ZeroShotDataset) -> bool:
    try:
        old = load_bundle(bundle)
    except DataError:
        return False
    return (old.checksum, old.provenance) == (dataset.checksum, dataset.provenance)
