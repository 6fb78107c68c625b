"""The shapes that are measured: those of CUB, SUN, AwA1 and AwA2, with real data where it is at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from classnorm.data import SyntheticConfig, ZeroShotDataset, load, synthetic
from classnorm.errors import DataError, unknown_name


@dataclass(frozen=True)
class Shape:
    """Sizes of a dataset of the paper."""

    name: str
    rows: int
    """Training rows."""
    seen: int
    unseen: int
    attributes: int


SHAPES = (
    Shape("CUB", 7057, 150, 50, 312),
    Shape("SUN", 10320, 645, 72, 102),
    Shape("AwA1", 19832, 40, 10, 85),
    Shape("AwA2", 23527, 40, 10, 85),
)


def chosen_shapes(names: Sequence[str]) -> list[Shape]:
    """The shapes of these names, in any case; all of them for none."""
    known = {shape.name.casefold(): shape for shape in SHAPES}
    for name in names:
        if name.casefold() not in known:
            raise unknown_name("shape", name, [shape.name for shape in SHAPES])
    return [known[name] for name in dict.fromkeys(name.casefold() for name in names)] or list(SHAPES)


def synthetic_dataset(shape: Shape, features_dim: int) -> ZeroShotDataset:
    """Made-up data with exactly the training rows, classes and dimensions of the shape."""
    per_class = max(2, -(-shape.rows * 5 // (4 * shape.seen)))  # a fifth of the rows of a seen class are test rows
    classes = shape.seen + shape.unseen
    config = SyntheticConfig(classes, shape.unseen, per_class * classes, features_dim, shape.attributes)
    dataset = synthetic(config)
    return replace(dataset, split=replace(dataset.split, train=dataset.split.train[: shape.rows]))


def find_dataset(shape: Shape, features_dim: int, data_root: Path | None) -> tuple[ZeroShotDataset, str]:
    """The dataset to measure on, and what it is: the real one below `data_root` if it is there, else a synthetic one.

    A real dataset is used with res101 features if it has them, else with the first in its folder.
    """
    if data_root is not None and not data_root.is_dir():
        raise DataError(f"{data_root}: no such folder; `data_root` holds CUB/att_splits.mat, SUN/att_splits.mat, …")
    for name in dict.fromkeys((shape.name, shape.name.upper())) if data_root else ():
        folder = Path(data_root or "") / name
        files = sorted(file.stem for file in folder.glob("*.mat") if file.stem != "att_splits")
        if files and (folder / "att_splits.mat").is_file():
            features = "res101" if "res101" in files else files[0]
            return load(folder, features=features), f"real, {features}"
    return synthetic_dataset(shape, features_dim), "synthetic"
