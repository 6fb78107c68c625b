"""Datasets, the columns of the tables: the paper's datasets, the embedded one, and any others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from classnorm.data import ZeroShotDataset, load
from classnorm.data.descriptions import with_descriptors
from classnorm.errors import ConfigError, DataError, unknown_name
from classnorm.metrics import Calibration
from classnorm_lab.paper.measured import Setting
from classnorm_lab.paper.published import PAPER_DATASETS
from classnorm_lab.paper.variants import LIGHT

EMBEDDED = "glyphs-light"
_EMBEDDED = "glyphs"  # how the names of embedded datasets start
_SPLITS = "att_splits.mat"
_RELEASED_SCALES = {"SUN": 0.95, "AWA1": 0.95, "AWA2": 0.95}


@dataclass(frozen=True)
class PaperDataset:
    """A dataset, or a note that it is missing."""

    name: str
    source: str | Path
    features: str = ""
    """Feature file of a GBU folder; empty for other sources."""
    descriptors: Path | None = None
    """File of class descriptors that replace the attributes, joined by class name."""
    missing: str = ""
    """How to get the dataset; empty if it is available."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that override the recipe on this dataset."""
    one_seed: bool = False
    """Whether the zero-shot tables run a single seed on it."""
    loaded: ZeroShotDataset | None = None

    @cached_property
    def dataset(self) -> ZeroShotDataset:
        dataset = self.loaded or load(self.source, features=self.features)
        return dataset if self.descriptors is None else with_descriptors(dataset, self.descriptors)

    @property
    def label(self) -> str:
        """Dataset, features and descriptors other than attributes, since scores on different ones do not compare."""
        parts = [self.features or self.dataset.provenance.get("features", "own features")]
        parts += [self.descriptors.stem] if self.descriptors else []
        parts += ["light"] if self.is_light else []
        return f"{self.name.partition(':')[0]} ({', '.join(parts)})"

    @property
    def is_light(self) -> bool:
        """Whether its MLPs are light though it is not embedded, where all are."""
        return self.changes == LIGHT and not self.name.startswith(_EMBEDDED)

    @property
    def argument(self) -> str:
        """The name by which it was asked for, without the folder of a descriptor file."""
        return self.name if self.descriptors is None else f"{self.name.rpartition(':')[0]}:{self.descriptors.name}"

    @property
    def setting(self) -> Setting:
        if self.missing:
            return Setting(self.name, self.name, missing=f"{self.name}: not measured, its features are missing.")
        dataset = self.name.partition(":")[0]
        return Setting(self.name, self.label, dataset if dataset in PAPER_DATASETS and not self.descriptors else "")

    @property
    def released(self) -> Calibration:
        """The scale of the seen scores in the authors' code; no change for data that they did not use."""
        return Calibration("scale", _RELEASED_SCALES.get(self.dataset.benchmark or "", 1.0))

    @property
    def folder(self) -> Path | None:
        """The GBU folder that holds the attributes, if there is one; features may be missing."""
        return self.source if isinstance(self.source, Path) and (self.source / _SPLITS).is_file() else None


def find_datasets(
    names: Sequence[str],
    data_root: Path | None,
    features: str | None,
    light: Sequence[str] = (),
    one_seed: Sequence[str] = (),
) -> list[PaperDataset]:
    """Find a dataset for each name: a dataset of the paper in `data_root`, or any source that `data.load` accepts.

    The name of a dataset of the paper may be followed by a feature file and a file of descriptors: ``CUB:resnet50`` or
    ``CUB:resnet50:cub_sentences.npz``. Those in `light` have light MLPs, those in `one_seed` a single seed.
    """
    for option, some in (("light", light), ("one_seed", one_seed)):
        unknown = [name for name in some if name not in names]
        if unknown:
            raise unknown_name("dataset", unknown[0], names, f"`{option}` names some of `data`")
    if data_root is not None and not data_root.is_dir():
        raise DataError(f"{data_root}: no such folder; `data_root` holds CUB/att_splits.mat, SUN/att_splits.mat, …")
    datasets = []
    for name in dict.fromkeys(names):
        is_of_paper = name.partition(":")[0] in PAPER_DATASETS
        found = _of_the_paper(name, data_root, features) if is_of_paper else _other(name, features)
        changes = LIGHT if name in light else found.changes
        datasets.append(replace(found, changes=changes, one_seed=name in one_seed))
    repeated = [name for name, count in Counter(paper_dataset.name for paper_dataset in datasets).items() if count > 1]
    if repeated:
        raise ConfigError(f"two of the datasets are called {repeated[0]!r}; run them one at a time")
    return datasets


def _other(name: str, features: str | None) -> PaperDataset:
    path = Path(name)
    source = path if path.exists() else name
    if name.startswith(_EMBEDDED):
        return PaperDataset(name, source, changes=LIGHT)
    paper_dataset = PaperDataset(name, source, _feature_file(path, features) if path.is_dir() else "")
    return replace(paper_dataset, name=paper_dataset.dataset.name, loaded=paper_dataset.dataset)


def _feature_file(folder: Path, features: str | None) -> str:
    """The requested feature file, else res101, else the first in the folder."""
    names = sorted(file.stem for file in folder.glob("*.mat") if file.stem != "att_splits")
    return features or (names[0] if names and "res101" not in names else "res101")


def _of_the_paper(name: str, data_root: Path | None, features: str | None) -> PaperDataset:
    dataset, own_features, file = (*name.split(":", 2), "", "")[:3]
    descriptors = Path(file) if file else None
    name = ":".join(filter(None, (dataset, own_features, descriptors.stem if descriptors else "")))
    features = own_features or features
    if data_root is None:
        files = f"{{att_splits,{features or 'res101'}}}.mat"
        return PaperDataset(name, name, missing=f"{name}: give `data_root=DIR` with DIR/{dataset}/{files}")
    folder = data_root / dataset
    features = _feature_file(folder, features)
    files = " and ".join(file for file in (_SPLITS, f"{features}.mat") if not (folder / file).is_file())
    if not files:
        return PaperDataset(name, folder, features, descriptors)
    return PaperDataset(
        name, folder, missing=f"{name}: put {files} (features and labels in GBU's layout) into {folder}"
    )
