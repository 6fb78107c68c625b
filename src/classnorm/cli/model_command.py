"""Commands that use a saved model: images or features for it, and classes and examples that it gets from files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
import tyro

from classnorm.cli.console import counted
from classnorm.cli.image_options import notice_skipped
from classnorm.cli.options import Command, DeviceOption, optional
from classnorm.data import glyphs
from classnorm.data.bundles import is_folder_bundle, read_store
from classnorm.data.descriptions import Descriptions, read_descriptions
from classnorm.data.images import find_images, list_images
from classnorm.data.table_files import descriptor_columns, read_descriptors, read_features
from classnorm.encoders import Encoder, check_encoder, frozen_encoder, recorded_encoder, same_encoder
from classnorm.errors import ConfigError, DataError, ModelWarning
from classnorm.io.arrays import read_npz, texts
from classnorm.preparation.describing import describe, recorded_text_encoder
from classnorm.progress import notice, stage
from classnorm.results.run_folder import encoder_file, model_files, read_encoder
from classnorm.training import Device, pick_device

if TYPE_CHECKING:
    from classnorm.scoring import Scorer

_WITHOUT_LABELS = (".npy", ".mat", ".parquet")  # features
_INPUTS = (
    "Images, folders or .csv files with a column path; or one file of features: .npy, .npz, .mat, .csv, .parquet, "
    "a bundle."
)

InputsArgument = Annotated[tuple[Path, ...], tyro.conf.Positional, optional("IMAGES|FEATURES…", _INPUTS)]


class Inputs(NamedTuple):
    """Rows of features."""

    names: list[str] | None
    """Of the images, if they are known."""
    features: Any
    """[n, d_z], an array or a `RowStore`."""


class LabelledInputs(NamedTuple):
    """Rows of features and the names of their classes."""

    features: Any
    """[n, d_z]"""
    labels: list[str]


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Encoder of the images, by default the one recorded with the model."""

    encoder: Annotated[str | None, optional("NAME")] = None
    """Image encoder (default: the one recorded with the model)."""
    size: Annotated[int | None, optional("PX")] = None
    """Side of the encoder's input in pixels, for --encoder."""
    weights: Annotated[Path | None, optional("FILE")] = None
    """Weights of the encoder, if the model was not trained with the default weights."""
    device: DeviceOption = "auto"

    def check(self, paths: Sequence[Path]) -> None:
        """Raise a `ConfigError` for an invalid encoder or if there is nothing to read, before anything is loaded."""
        if not paths:
            raise ConfigError("nothing to read; name images, folders of images or a file of features after the model")
        if self.encoder is not None:
            check_encoder(self.encoder, self.size)
        elif self.size is not None:
            raise ConfigError("--size needs --encoder; by default the model knows its encoder and its size")


@dataclass(frozen=True, kw_only=True)
class ModelCommand(Command):
    """A command that uses a saved model."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help="Folder of a finished run.")]

    @property
    def device(self) -> Device:
        """Where the model computes."""
        return "cpu"

    @classmethod
    def _parse(cls, arguments: Sequence[str], program: str) -> Self:
        parsed = super()._parse(arguments, program)
        model_files(parsed.model)  # raises before data is read or PyTorch is loaded
        return parsed

    def load(self) -> Scorer:
        from classnorm.scoring import Scorer  # PyTorch

        return Scorer.load(self.model, self.device)

    def check_new(self, out: Path) -> None:
        """Raise a `ConfigError` if the folder of a new model is taken."""
        if (out / "model.json").exists() or out.is_file():
            raise ConfigError(f"--out {out}: exists; choose another folder")


@dataclass(frozen=True, kw_only=True)
class InputCommand(ModelCommand):
    """A command that gives images or features to a saved model."""

    encoding: InputOptions

    @property
    def device(self) -> Device:
        return self.encoding.device

    def read(self, paths: Sequence[Path], d_z: int, *, may_be_empty: bool = False) -> Inputs:
        """Read features, or encode images like those that the model was trained on.

        Args:
            d_z: dimensions that the model expects.
            may_be_empty: whether features without a row are no error.
        """
        inputs = self._read(paths)
        if inputs.features.shape[1] != d_z:
            raise DataError(
                f"{paths[0]}: features have {inputs.features.shape[1]} dimensions; the model was trained on {d_z}"
            )
        if not len(inputs.features) and not may_be_empty:
            raise DataError(f"{paths[0]}: has no rows; give features of at least one picture")
        return inputs

    def _read(self, paths: Sequence[Path]) -> Inputs:
        if len(paths) == 1 and is_folder_bundle(paths[0]):
            return Inputs(None, read_store(paths[0]))
        images: dict[str, Path] = {}
        for path in paths:
            if not path.exists():
                is_dataset = str(path) in glyphs.NAMES
                hint = "; score the model on this dataset with classnorm evaluate" if is_dataset else ""
                raise DataError(f"{path}: no such file or folder{hint}")
            found = list_images(path)
            if found is None and len(paths) == 1:
                features = read_features(path)
                return Inputs(_image_names(path, len(features)), features)
            if found is None:
                raise DataError(f"{path}: not an image; of several paths all must be images or folders of them")
            inside = len(paths) > 1 and path.is_dir()  # names must tell the folders apart
            images |= {(path / name).as_posix() if inside else name: file for name, file in found.items()}
        return self.encode(images, str(paths[0]))

    def encode(self, images: dict[str, Path], where: str) -> Inputs:
        """Names and features of the images that can be read; a notice names the others."""
        from classnorm.preparation import encode_images

        encoder = self._encoder()
        with stage("extract"):
            features, reasons = encode_images(list(images.values()), encoder, pick_device(self.encoding.device))
        skipped = {name: reason for name, reason in zip(images, reasons, strict=True) if reason}
        if len(skipped) == len(images):
            name, reason = next(iter(skipped.items()))
            raise DataError(f"{where}: no image of {len(images)} can be read, first {name}: {reason}")
        notice_skipped(skipped)
        return Inputs([name for name in images if name not in skipped], features)

    def _encoder(self) -> Encoder:
        if self.encoding.encoder is None:
            return recorded_encoder(read_encoder(self.model), self.encoding.weights)
        encoder = frozen_encoder(self.encoding.encoder, self.encoding.size, self.encoding.weights)
        return same_encoder(encoder, read_encoder(self.model)) if encoder_file(self.model).is_file() else encoder

    def with_examples(self, scorer: Scorer, path: Path) -> Scorer:
        """The scorer with labelled pictures; a notice counts them and names classes that are new."""
        scorer.example_space()  # find out before images are encoded
        features, labels = self._labelled(path, scorer.d_z)
        with noticed_warnings():
            more = scorer.add_examples(features, labels, str(path))
        new = more.class_names[len(scorer.class_names) :]
        known_only_by_pictures = f"; new, without a description: {', '.join(new)}" if new else ""
        counts = f"{counted(len(labels), 'example')} of {counted(len(set(labels)), 'class')}"
        notice(f"{counts}{known_only_by_pictures}")
        return more

    def _labelled(self, path: Path, d_z: int) -> LabelledInputs:
        """Read features of an .npz file, or encode images like those that the model was trained on."""
        if path.is_file() and path.suffix.lower() in _WITHOUT_LABELS:
            raise DataError(f"{path}: has no labels; give an .npz file with features and labels (class names)")
        examples = _labelled_features(path) if path.suffix.lower() == ".npz" else self._encoded_labelled(path)
        if examples.features.shape[1] != d_z:
            dimensions = f"features have {examples.features.shape[1]} dimensions; the model was trained on {d_z}"
            raise DataError(f"{path}: {dimensions}")
        if not examples.labels:
            raise DataError(f"{path}: has no rows; give features and label of at least one picture")
        return examples

    def _encoded_labelled(self, path: Path) -> LabelledInputs:
        table = find_images(path)
        labels = {file: table.class_names[label] for file, label in zip(table.files, table.labels, strict=True)}
        names, features = self.encode({file: table.root / file for file in labels}, str(path))
        assert names is not None
        return LabelledInputs(features, [labels[name] for name in names])


def with_new_classes(scorer: Scorer, path: Path) -> Scorer:
    """The scorer with the classes of a file; a notice counts them.

    A model whose descriptors were made from text reads text too, and encodes it with the same encoder and templates.
    Descriptors that were made otherwise are refused, as far as both sides record how.
    """
    is_npz = path.suffix.lower() == ".npz"
    content = read_descriptions(path, numbers=is_npz) if scorer.origin.described_by.is_text or is_npz else None
    columns: Sequence[str] = ()
    if content is None:  # a model of attributes
        table, columns = read_descriptors(path), descriptor_columns(path)
    elif content.table is None:
        encoder, templates = recorded_text_encoder(scorer.origin.described_by)
        described = describe(content, encoder.name, templates)
        table = dict(zip(described.names, described.table, strict=True))
    else:
        _check_source(scorer, content)
        table, columns = dict(zip(content.names, content.table, strict=True)), content.columns
    more = scorer.add_classes(table, str(path), columns=columns)
    new = len(more.class_names) - len(scorer.class_names)
    known = f"; {len(table) - new} known already" if new < len(table) else ""
    notice(f"{counted(new, 'new class')} from {path}{known}")
    return more


@contextmanager
def noticed_warnings() -> Iterator[None]:
    """Print what the model warns of as notices."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ModelWarning)
        yield
    for warning in caught:
        notice(str(warning.message))


def _image_names(path: Path, rows: int) -> list[str] | None:
    """The images that the features in a file were made of, if it has their names."""
    files = read_npz(path, (), ("image_files",)) if path.suffix.lower() == ".npz" else {}
    names = texts(files["image_files"], str(path)) if files else []
    return names if names and len(names) == rows else None


def _labelled_features(path: Path) -> LabelledInputs:
    content = read_npz(path, ("features", "labels"), ("class_names",))
    labels, features = np.asarray(content["labels"]), read_features(path)
    if labels.ndim != 1 or len(labels) != len(features):
        raise DataError(f"{path}: labels of shape {labels.shape} for {len(features)} rows; give one class name per row")
    if labels.dtype.kind in "iu" and "class_names" in content:  # a bundle
        names = texts(content["class_names"], str(path))
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
            raise DataError(f"{path}: labels must be indices into the {len(names)} class names")
        return LabelledInputs(features, [names[label] for label in labels])
    if labels.dtype.kind not in "US":
        raise DataError(f"{path}: labels must be class names, as in labels=np.array(names)")
    return LabelledInputs(features, texts(labels, str(path)))


def _check_source(scorer: Scorer, content: Descriptions) -> None:
    """Raise unless the descriptors were made like those of the model; either may not be recorded."""
    for key, what in (("text_encoder", "the text encoder"), ("templates", "the templates")):
        if key not in content.provenance or key not in scorer.origin.described_by:
            continue
        new, known = (source.parsed(key) for source in (content.provenance, scorer.origin.described_by))
        if isinstance(new, dict) and isinstance(known, dict):
            if new.get("sha256") == known.get("sha256"):
                continue
            new, known = [new.get("name")], [known.get("name")]
        if new != known:
            raise DataError(
                f"{content.where}: its descriptors were made with {what} {_shown(new)}, those of the model with "
                f"{_shown(known)}; give the text itself, or describe it again"
            )


def _shown(values: Any) -> str:
    return ", ".join(map(repr, values)) if isinstance(values, list) else repr(values)
