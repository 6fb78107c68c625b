"""Labelled examples for a saved model: images in a folder per class, or features with class names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from classnorm.cli.model_inputs import InputOptions
from classnorm.data.images import find_images
from classnorm.data.table_files import read_features
from classnorm.errors import DataError
from classnorm.io.arrays import read_npz, texts

_WITHOUT_LABELS = (".npy", ".mat", ".parquet")  # features


class LabelledInputs(NamedTuple):
    """Rows of features and the names of their classes."""

    features: Any
    """[n, d_z]"""
    labels: list[str]


def read_examples(encoding: InputOptions, model: Path, path: Path, d_z: int) -> LabelledInputs:
    """Read features of an .npz file, or encode images like those that the model was trained on."""
    if path.is_file() and path.suffix.lower() in _WITHOUT_LABELS:
        raise DataError(f"{path}: has no labels; give an .npz file with features and labels (class names)")
    examples = _of_features(path) if path.suffix.lower() == ".npz" else _of_images(encoding, model, path)
    if examples.features.shape[1] != d_z:
        dimensions = f"features have {examples.features.shape[1]} dimensions; the model was trained on {d_z}"
        raise DataError(f"{path}: {dimensions}")
    if not examples.labels:
        raise DataError(f"{path}: has no rows; give features and label of at least one picture")
    return examples


def _of_features(path: Path) -> LabelledInputs:
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


def _of_images(encoding: InputOptions, model: Path, path: Path) -> LabelledInputs:
    table = find_images(path)
    labels = {file: table.class_names[label] for file, label in zip(table.files, table.labels, strict=True)}
    names, features = encoding.encode(model, {file: table.root / file for file in labels}, str(path))
    assert names is not None
    return LabelledInputs(features, [labels[name] for name in names])
