"""Benchmarks, the columns of the tables: the paper's datasets, the embedded one, and any others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from classnorm.data import ZeroShotDataset, load
from classnorm.errors import ConfigError, DataError
from classnorm.reproduce.published import PAPER_BENCHMARKS

__all__ = ["EMBEDDED", "Benchmark", "find_benchmarks"]

EMBEDDED = "glyphs-light"
_SPLITS = "att_splits.mat"
_LIGHT: dict[str, Any] = {"hidden": 512, "epochs": 25}
"""Settings of `make run`, for the embedded dataset."""


@dataclass(frozen=True)
class Benchmark:
    """A dataset, or a note that it is missing."""

    name: str
    source: str | Path
    features: str = ""
    """Feature file of a GBU folder; empty for other sources."""
    missing: str = ""
    """How to get the dataset; empty if it is available."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that override the recipe on this dataset."""
    loaded: ZeroShotDataset | None = None

    @cached_property
    def dataset(self) -> ZeroShotDataset:
        return self.loaded or load(self.source, features=self.features)

    @property
    def label(self) -> str:
        """Name and features, since scores on different features are not comparable."""
        return f"{self.name} ({self.features or self.dataset.provenance.get('features', 'own features')})"

    @property
    def folder(self) -> Path | None:
        """The GBU folder that holds the attributes, if there is one; features may be missing."""
        return self.source if isinstance(self.source, Path) and (self.source / _SPLITS).is_file() else None


def find_benchmarks(names: Sequence[str], data_root: Path | None, features: str | None) -> list[Benchmark]:
    """Find a benchmark for each name: a dataset of the paper in `data_root`, or any source that `data.load` accepts."""
    if data_root is not None and not data_root.is_dir():
        raise DataError(f"{data_root}: no such folder; `data_root` holds CUB/att_splits.mat, SUN/att_splits.mat, …")
    benchmarks = [
        _paper_benchmark(name, data_root, features) if name in PAPER_BENCHMARKS else _other(name, features)
        for name in dict.fromkeys(names)
    ]
    repeated = [name for name, count in Counter(benchmark.name for benchmark in benchmarks).items() if count > 1]
    if repeated:
        raise ConfigError(f"two of the datasets are called {repeated[0]!r}; run them one at a time")
    return benchmarks


def _other(name: str, features: str | None) -> Benchmark:
    path = Path(name)
    source = path if path.exists() else name
    if name.startswith("glyphs"):
        return Benchmark(name, source, changes=_LIGHT)
    benchmark = Benchmark(name, source, _feature_file(path, features) if path.is_dir() else "")
    return replace(benchmark, name=benchmark.dataset.name, loaded=benchmark.dataset)


def _feature_file(folder: Path, features: str | None) -> str:
    """The requested feature file, else res101, else the first in the folder."""
    names = sorted(file.stem for file in folder.glob("*.mat") if file.stem != "att_splits")
    return features or (names[0] if names and "res101" not in names else "res101")


def _paper_benchmark(name: str, data_root: Path | None, features: str | None) -> Benchmark:
    if data_root is None:
        files = f"{{att_splits,{features or 'res101'}}}.mat"
        return Benchmark(name, name, missing=f"{name}: give `data_root=DIR` with DIR/{name}/{files}")
    folder = data_root / name
    features = _feature_file(folder, features)
    files = " and ".join(file for file in (_SPLITS, f"{features}.mat") if not (folder / file).is_file())
    if not files:
        return Benchmark(name, folder, features)
    return Benchmark(name, folder, missing=f"{name}: put {files} (features and labels in GBU's layout) into {folder}")
