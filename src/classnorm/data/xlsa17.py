"""GBU folders ("xlsa17", Xian et al.): `att_splits.mat` and a feature file such as `res101.mat`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.data.checks import check_integers
from classnorm.data.dataset import Split, ZeroShotDataset, recognise
from classnorm.data.image_table import folder_and_file
from classnorm.data.names import find_attribute_names
from classnorm.errors import DataError
from classnorm.io.files import replacing, write_text
from classnorm.io.matlab import read_mat

AttributesKey = Literal["att", "original_att"]

_SPLITS = "att_splits.mat"
_LOCATIONS = ("trainval_loc", "test_seen_loc", "test_unseen_loc")


def load_gbu(
    folder: Path, features: str = "res101", attributes: AttributesKey = "att", max_bytes: int | None = None
) -> ZeroShotDataset:
    """Read a GBU folder.

    Args:
        folder: contains `att_splits.mat` and the feature file.
        features: name of the feature file, without `.mat`; several joined by + have their features side by side.
        attributes: ``att`` (unit-norm columns) or ``original_att`` (raw).
        max_bytes: that a variable may take unpacked; by default what is plausible for the size of the file.
    """
    if "+" in features and not (folder / f"{features}.mat").is_file():
        return _joined([load_gbu(folder, name, attributes, max_bytes) for name in features.split("+")], features)
    feature_file = folder / f"{features}.mat"
    if not feature_file.is_file():
        candidates = sorted(file.stem for file in folder.glob("*.mat") if file.name != _SPLITS)
        hint = f"use `features={candidates[0]!r}`" if candidates else "download or extract features first"
        if not candidates and not (folder / _SPLITS).is_file():
            hint += f"; for a folder of images: `images={str(folder)!r}`"
        raise DataError(f"{feature_file}: no such file; {hint}")
    names, descriptors, split = read_splits(folder, attributes)
    table = read_mat(feature_file, ["features", "labels"], ["image_files", "allclasses_names"], max_bytes)
    if "allclasses_names" in table:
        file_names = _strings(table["allclasses_names"], feature_file, "allclasses_names")
        unknown = [name for name in file_names if name not in names]
        if unknown:
            raise DataError(f"{feature_file}: class {unknown[0]!r} is not in {_SPLITS}; class names must match")
        labels = _labels(table["labels"], feature_file, len(file_names))
        labels = np.array([names.index(name) for name in file_names], dtype=np.int64)[labels]
    else:
        labels = _labels(table["labels"], feature_file, len(names))
    files = _strings(table["image_files"], feature_file, "image_files") if "image_files" in table else None
    if files is not None:
        _check_image_folders(files, labels, names, feature_file)
    return ZeroShotDataset.from_arrays(
        _by_rows(table["features"], len(labels), feature_file, "features"),
        labels,
        descriptors,
        names,
        **split.parts,
        name=recognise(names, len(labels)) or folder.resolve().name,
        where=str(folder),
        provenance={
            "features": features,
            "attributes": attributes,
            # Two versions of the Proposed Splits share one file name; the checksum distinguishes them.
            "split": f"GBU {split.checksum[:8]}",
        },
        image_files=files,
        attribute_names=find_attribute_names(folder, descriptors.shape[1]),
    )


def _joined(parts: Sequence[ZeroShotDataset], features: str) -> ZeroShotDataset:
    """The first dataset with the features of all, which must have the same rows."""
    first = parts[0]
    for part in parts[1:]:
        if not np.array_equal(first.labels, part.labels) or _image_names(first) != _image_names(part):
            names = " and ".join(f"{p.provenance['features']}.mat" for p in (first, part))
            raise DataError(f"{names} have rows of other images or in another order; extract both from the same list")
    return replace(
        first,
        features=np.concatenate([np.asarray(part.features) for part in parts], axis=1),
        provenance=first.provenance
        | {"features": features, "feature_blocks": ",".join(str(part.d_z) for part in parts)},
    )


def _image_names(dataset: ZeroShotDataset) -> list[str] | None:
    """The last two parts of the path of each image."""
    return None if dataset.image_files is None else [folder_and_file(file) for file in dataset.image_files]


def read_splits(folder: Path, attributes: AttributesKey = "att") -> tuple[list[str], npt.NDArray[Any], Split]:
    """Read `att_splits.mat`: class names, attributes [n_classes, d_a] and the split."""
    path = folder / _SPLITS
    content = read_mat(path, [attributes, "allclasses_names", *_LOCATIONS])
    names = _strings(content["allclasses_names"], path, "allclasses_names")
    split = Split(*(_locations(content[key], path, key) for key in _LOCATIONS))
    return names, _by_rows(content[attributes], len(names), path, attributes), split


def save_gbu(dataset: ZeroShotDataset, folder: Path, features: str = "features") -> None:
    """Write `dataset` as a GBU folder: `att_splits.mat` and `FEATURES.mat`, both MATLAB v5, and `attributes.txt` if the
    attributes have names."""
    norms = np.linalg.norm(dataset.descriptors.astype(np.float64), axis=1, keepdims=True)
    norms[np.abs(norms - 1.0) < 1e-6] = 1.0  # already unit norm: dividing again would only add rounding errors
    table: dict[str, Any] = {
        "features": np.ascontiguousarray(np.asarray(dataset.features, dtype=np.float32).T),
        "labels": dataset.labels.reshape(-1, 1) + 1.0,
    }
    if dataset.image_files is not None:
        table["image_files"] = np.array(dataset.image_files, dtype=object).reshape(-1, 1)
    splits = {
        "att": (dataset.descriptors / norms).T,
        "original_att": dataset.descriptors.T.astype(np.float64),
        "allclasses_names": np.array(dataset.class_names, dtype=object).reshape(-1, 1),
        **{key: rows.reshape(-1, 1) + 1.0 for key, rows in zip(_LOCATIONS, dataset.split.parts.values(), strict=True)},
    }
    import scipy.io  # here, because the import takes long

    for path, content in ((folder / f"{features}.mat", table), (folder / _SPLITS, splits)):
        with replacing(path) as temporary:
            scipy.io.savemat(temporary, content, do_compression=False)
    if dataset.attribute_names is not None:
        lines = [f"{number} {' '.join(name.split())}\n" for number, name in enumerate(dataset.attribute_names, start=1)]
        write_text(folder / "attributes.txt", "".join(lines))


def _strings(cells: Any, path: Path, key: str) -> list[str]:
    """Return the strings of a cell array, unwrapping the arrays around each."""
    strings = []
    for cell in np.asarray(cells, dtype=object).reshape(-1) if not isinstance(cells, list) else cells:
        while isinstance(cell, np.ndarray) and cell.size == 1:
            cell = cell.reshape(-1)[0]
        if not isinstance(cell, str):
            raise DataError(f"{path}: {key} must be a cell array of strings, not of {type(cell).__name__}")
        strings.append(cell.strip())
    return strings


def _locations(values: Any, path: Path, key: str) -> npt.NDArray[np.int64]:
    rows = check_integers(values, key, str(path))
    if len(rows) and rows.min() < 1:
        raise DataError(f"{path}: {key} contains row {rows.min()}; GBU rows are 1-based")
    return rows - 1


def _labels(values: Any, path: Path, n_classes: int) -> npt.NDArray[np.int64]:
    labels = check_integers(values, "labels", str(path))
    if len(labels) and labels.min() == 0:
        raise DataError(f"{path}: labels start at 0; GBU labels are 1-based, add 1 to each")
    bad = np.flatnonzero((labels < 1) | (labels > n_classes))
    if len(bad):
        raise DataError(
            f"{path}: label {labels[bad[0]]} of row {bad[0] + 1} (1-based) is out of range; "
            f"{n_classes} class names allow 1 to {n_classes}"
        )
    return labels - 1


def _by_rows(matrix: Any, n: int, path: Path, key: str) -> npt.NDArray[Any]:
    """Return [n, d] from MATLAB's [d, n]; also accept [n, d] if that is unambiguous."""
    array = np.asarray(matrix)
    if array.ndim == 2 and n in array.shape:
        return array.T if array.shape[1] == n else array
    raise DataError(
        f"{path}: {key} has shape {array.shape}, but {n} columns are expected; the files may not belong together"
    )


def _check_image_folders(files: Iterable[str], labels: npt.NDArray[np.int64], names: Sequence[str], path: Path) -> None:
    """If the parent folder of every image is a class name, check the labels against them."""
    position = {name: i for i, name in enumerate(names)}
    claimed = np.array([position.get(PureWindowsPath(file).parent.name, -1) for file in files])
    if len(claimed) != len(labels) or (claimed < 0).any():
        return
    wrong = np.flatnonzero(claimed != labels)
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path}: row {row + 1} (1-based) is labelled {names[labels[row]]!r} but is in {names[claimed[row]]!r}; "
            f"labels must be indices into allclasses_names of {_SPLITS}"
        )
