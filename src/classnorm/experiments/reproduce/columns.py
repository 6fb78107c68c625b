"""The columns of the tables: the paper's datasets as far as they are at hand, and the embedded one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from classnorm.data import ZeroShotDataset, load
from classnorm.errors import DataError
from classnorm.experiments.reproduce.published import BENCHMARKS

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

    @cached_property
    def dataset(self) -> ZeroShotDataset:
        return load(self.source, features=self.features)

    @property
    def label(self) -> str:
        """The name with its features: figures of different features are never set side by side without."""
        return f"{self.name} ({self.features or self.dataset.provenance.get('features', 'own features')})"

    @property
    def folder(self) -> Path | None:
        """Its GBU folder, if it is in one."""
        return self.source if isinstance(self.source, Path) and self.source.is_dir() else None


def find_columns(names: Sequence[str], data_root: Path | None, features: str | None) -> list[Column]:
    """A column for each name: a benchmark below `data_root`, or any other dataset."""
    if data_root is not None and not data_root.is_dir():
        raise DataError(f"{data_root}: no such folder; --data-root holds CUB/att_splits.mat and so on")
    return [_benchmark(name, data_root, features) if name in BENCHMARKS else _other(name) for name in names]


def _other(name: str) -> Column:
    column = Column(name, Path(name) if Path(name).exists() else name, changes=_LIGHT if "glyphs" in name else {})
    return column if name.startswith("glyphs") else Column(column.dataset.name, column.source)


def _benchmark(name: str, data_root: Path | None, features: str | None) -> Column:
    wanted = features or "res101"
    if data_root is None:
        return Column(name, name, missing=f"{name}: give --data-root DIR with DIR/{name}/{{att_splits,{wanted}}}.mat")
    folder = data_root / name
    found = sorted(file.stem for file in folder.glob("*.mat") if file.stem != "att_splits")
    if features is None and found and wanted not in found:
        wanted = found[0]
    if wanted in found and (folder / "att_splits.mat").is_file():
        return Column(name, folder, wanted)
    what = "att_splits.mat and " if not (folder / "att_splits.mat").is_file() else ""
    return Column(
        name, folder, missing=f"{name}: put {what}{wanted}.mat (features and labels in GBU's layout) into {folder}"
    )
