"""The columns of the tables: the paper's datasets as far as they are at hand, and the embedded one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from classnorm.data import ZeroShotDataset, load
from classnorm.errors import ConfigError, DataError
from classnorm.reproduce.published import BENCHMARKS

__all__ = ["EMBEDDED", "Column", "find_columns"]

EMBEDDED = "glyphs-light"
_LIGHT: dict[str, Any] = {"hidden": 512, "epochs": 25}
"""Settings for the embedded dataset, whose rows are few: those of `make run`."""


@dataclass(frozen=True)
class Column:
    """A dataset, or where it would have to be."""

    name: str
    source: str | Path
    features: str = ""
    """Feature file of a GBU folder; empty if there is none."""
    missing: str = ""
    """How to get it, if it is not at hand."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings for this dataset."""
    loaded: ZeroShotDataset | None = None

    @cached_property
    def dataset(self) -> ZeroShotDataset:
        return self.loaded or load(self.source, features=self.features)

    @property
    def label(self) -> str:
        """The name with its features: figures of different features are never set side by side without."""
        return f"{self.name} ({self.features or self.dataset.provenance.get('features', 'own features')})"

    @property
    def attributes(self) -> Path | None:
        """The GBU folder with its attributes, which may be there without features."""
        return self.source if isinstance(self.source, Path) and (self.source / "att_splits.mat").is_file() else None

    @property
    def folder(self) -> Path | None:
        """Its GBU folder, if it is in one."""
        return self.source if isinstance(self.source, Path) and self.source.is_dir() else None


def find_columns(names: Sequence[str], data_root: Path | None, features: str | None) -> list[Column]:
    """A column for each name: a benchmark below `data_root`, or any other dataset."""
    if data_root is not None and not data_root.is_dir():
        raise DataError(f"{data_root}: no such folder; --data-root holds CUB/att_splits.mat and so on")
    columns = [
        _benchmark(name, data_root, features) if name in BENCHMARKS else _other(name, features)
        for name in dict.fromkeys(names)
    ]
    found = [column.name for column in columns]
    twice = [name for name in found if found.count(name) > 1]
    if twice:
        raise ConfigError(f"two of the datasets are called {twice[0]!r}; give them one at a time")
    return columns


def _other(name: str, features: str | None) -> Column:
    path = Path(name)
    if name.startswith("glyphs"):
        return Column(name, path if path.exists() else name, changes=_LIGHT)
    which = _feature_file(path, features) if path.is_dir() else ""
    column = Column(name, path if path.exists() else name, which)
    return replace(column, name=column.dataset.name, loaded=column.dataset)


def _feature_file(folder: Path, features: str | None) -> str:
    """The one that is asked for, or res101, or the one that is there."""
    found = sorted(file.stem for file in folder.glob("*.mat") if file.stem != "att_splits")
    return features or (found[0] if found and "res101" not in found else "res101")


def _benchmark(name: str, data_root: Path | None, features: str | None) -> Column:
    if data_root is None:
        wanted = features or "res101"
        return Column(name, name, missing=f"{name}: give --data-root DIR with DIR/{name}/{{att_splits,{wanted}}}.mat")
    folder = data_root / name
    wanted = _feature_file(folder, features)
    if (folder / f"{wanted}.mat").is_file() and (folder / "att_splits.mat").is_file():
        return Column(name, folder, wanted)
    what = "att_splits.mat and " if not (folder / "att_splits.mat").is_file() else ""
    return Column(
        name, folder, missing=f"{name}: put {what}{wanted}.mat (features and labels in GBU's layout) into {folder}"
    )
