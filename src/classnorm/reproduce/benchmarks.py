"""Benchmarks, the columns of the tables: the paper's datasets, the embedded one, and any other."""

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
_LIGHT: dict[str, Any] = {"hidden": 512, "epochs": 25}
"""Settings for the embedded dataset, which is small: those of `make run`."""


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
    """Settings for this dataset."""
    loaded: ZeroShotDataset | None = None

    @cached_property
    def dataset(self) -> ZeroShotDataset:
        return self.loaded or load(self.source, features=self.features)

    @property
    def label(self) -> str:
        """The name with its features, since scores of different features are not comparable."""
        return f"{self.name} ({self.features or self.dataset.provenance.get('features', 'own features')})"

    @property
    def attributes(self) -> Path | None:
        """The GBU folder with the attributes, which may be available without features."""
        return self.source if isinstance(self.source, Path) and (self.source / "att_splits.mat").is_file() else None

    @property
    def folder(self) -> Path | None:
        """The GBU folder, if the dataset is in one."""
        return self.source if isinstance(self.source, Path) and self.source.is_dir() else None


def find_benchmarks(names: Sequence[str], data_root: Path | None, features: str | None) -> list[Benchmark]:
    """A benchmark for each name: a dataset of the paper below `data_root`, or any other that `data.load` takes."""
    if data_root is not None and not data_root.is_dir():
        raise DataError(f"{data_root}: no such folder; `data_root` holds CUB/att_splits.mat and so on")
    benchmarks = [
        _paper_benchmark(name, data_root, features) if name in PAPER_BENCHMARKS else _other(name, features)
        for name in dict.fromkeys(names)
    ]
    repeated = [name for name, count in Counter(benchmark.name for benchmark in benchmarks).items() if count > 1]
    if repeated:
        raise ConfigError(f"two of the datasets are called {repeated[0]!r}; give them one at a time")
    return benchmarks


def _other(name: str, features: str | None) -> Benchmark:
    path = Path(name)
    if name.startswith("glyphs"):
        return Benchmark(name, path if path.exists() else name, changes=_LIGHT)
    which = _feature_file(path, features) if path.is_dir() else ""
    benchmark = Benchmark(name, path if path.exists() else name, which)
    return replace(benchmark, name=benchmark.dataset.name, loaded=benchmark.dataset)


def _feature_file(folder: Path, features: str | None) -> str:
    """The requested file, res101, or the first one in the folder."""
    names = sorted(file.stem for file in folder.glob("*.mat") if file.stem != "att_splits")
    return features or (names[0] if names and "res101" not in names else "res101")


def _paper_benchmark(name: str, data_root: Path | None, features: str | None) -> Benchmark:
    if data_root is None:
        wanted = features or "res101"
        return Benchmark(
            name, name, missing=f"{name}: give `data_root=DIR` with DIR/{name}/{{att_splits,{wanted}}}.mat"
        )
    folder = data_root / name
    wanted = _feature_file(folder, features)
    if (folder / f"{wanted}.mat").is_file() and (folder / "att_splits.mat").is_file():
        return Benchmark(name, folder, wanted)
    what = "att_splits.mat and " if not (folder / "att_splits.mat").is_file() else ""
    return Benchmark(
        name, folder, missing=f"{name}: put {what}{wanted}.mat (features and labels in GBU's layout) into {folder}"
    )
