"""Images or features for a saved model, as the commands that use one read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from classnorm.cli.image_options import notice_skipped
from classnorm.cli.options import optional
from classnorm.cli.run_options import DeviceOption
from classnorm.data import glyphs
from classnorm.data.bundles import is_folder_bundle, read_store
from classnorm.data.images import list_images
from classnorm.data.table_files import read_features
from classnorm.encoders import Encoder, check_encoder, frozen_encoder, recorded_encoder, same_encoder
from classnorm.errors import ConfigError, DataError
from classnorm.io.arrays import read_npz, texts
from classnorm.progress import stage
from classnorm.results.run_folder import encoder_file, read_encoder
from classnorm.training import pick_device

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


def _image_names(path: Path, rows: int) -> list[str] | None:
    """The images that the features in a file were made of, if it has their names."""
    files = read_npz(path, (), ("image_files",)) if path.suffix.lower() == ".npz" else {}
    names = texts(files["image_files"], str(path)) if files else []
    return names if names and len(names) == rows else None


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

    def read(self, model: Path, paths: Sequence[Path], d_z: int, *, may_be_empty: bool = False) -> Inputs:
        """Read features, or encode images like those that the model was trained on.

        Args:
            d_z: dimensions that the model expects.
            may_be_empty: whether features without a row are no error.
        """
        inputs = self._read(model, paths)
        if inputs.features.shape[1] != d_z:
            raise DataError(
                f"{paths[0]}: features have {inputs.features.shape[1]} dimensions; the model was trained on {d_z}"
            )
        if not len(inputs.features) and not may_be_empty:
            raise DataError(f"{paths[0]}: has no rows; give features of at least one picture")
        return inputs

    def _read(self, model: Path, paths: Sequence[Path]) -> Inputs:
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
        return self.encode(model, images, str(paths[0]))

    def encode(self, model: Path, images: dict[str, Path], where: str) -> Inputs:
        """Names and features of the images that can be read; a notice names the others."""
        from classnorm.preparation import encode_images

        encoder = self._encoder(model)
        with stage("extract") as progress:
            features, reasons = encode_images(
                list(images.values()), encoder, device=pick_device(self.device), progress=progress
            )
        skipped = {name: reason for name, reason in zip(images, reasons, strict=True) if reason}
        if len(skipped) == len(images):
            name, reason = next(iter(skipped.items()))
            raise DataError(f"{where}: no image of {len(images)} can be read, first {name}: {reason}")
        notice_skipped(skipped)
        return Inputs([name for name in images if name not in skipped], features)

    def _encoder(self, model: Path) -> Encoder:
        if self.encoder is None:
            return recorded_encoder(read_encoder(model), self.weights)
        encoder = frozen_encoder(self.encoder, self.size, self.weights)
        return same_encoder(encoder, read_encoder(model)) if encoder_file(model).is_file() else encoder
